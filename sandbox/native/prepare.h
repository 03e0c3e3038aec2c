/* Carry out an order, up to the program's own first instruction. */

#pragma once

#include "order.h"
#include "text.h"

/* Limits, listeners, user, directory, Landlock and filter, as the order has them.

   `channel`: the socket on which the broker takes the filter's listener; negative without a broker.  Returns 0, or a
   negative errno; then `step` names the failed step. */
long prepare(const struct order *order, long control, long channel, struct text *step);

/* Become the order's user, without capabilities. */
long change_user(const struct order *order, struct text *step);
