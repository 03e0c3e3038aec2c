/* Carry out an order, up to the program's own first instruction. */

#ifndef QUARTERDECK_PREPARE_H
#define QUARTERDECK_PREPARE_H

#include "order.h"
#include "text.h"

/* Limits, listeners, user, directory, Landlock and filter, as the order has them.

   `channel`: where the broker takes the filter's listener; below zero where there is none.  Returns 0, or an errno below
   zero; then `step` says at what. */
long prepare(const struct order *order, long control, long channel, struct text *step);

/* Become the user that the order names, without capabilities. */
long change_user(const struct order *order, struct text *step);

#endif
