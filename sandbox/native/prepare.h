/* Carry out an order, up to the program's own first instruction. */

#ifndef QUARTERDECK_PREPARE_H
#define QUARTERDECK_PREPARE_H

#include "order.h"
#include "text.h"

/* Limits, listeners, user, directory, Landlock and filter, as the order has them.

   Returns 0, or an errno below zero; then `step` says at what. */
long prepare(const struct order *order, long control, struct text *step);

#endif
