/* Whether bytes are UTF-8, as strictly as Python and polars decide it. */
#ifndef TC_UTF8_H
#define TC_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool tc_is_utf8(const char *from, size_t size);

#endif
