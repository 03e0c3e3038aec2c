/* What can be seen and done from inside, just before the program starts.  `policy/confinement.py`
   judges it.  Each probe tries something that the program could try. */

#pragma once

#include "order.h"
#include "text.h"

/* Add a line `key value` for each fact.  Nothing is changed: what is opened is never written. */
void observe(const struct order *order, struct text *report);

/* Add one line; a value's own line breaks become spaces. */
void add_fact(struct text *report, const char *key, const char *value);
void add_number_fact(struct text *report, const char *key, int64_t value);
