/* Takes the addresses of librdkafka's functions. */
#include <string.h>

#include "export.h"
#include "rdkafka.h"

struct tc_rdkafka rd;

#define TC_NAME(result, name, arguments) "rd_kafka_" #name,
static const char *const names[] = {RDKAFKA(TC_NAME) NULL};

/* The names of the functions to be found, ended by NULL; they live as long as the library. */
TC_EXPORT const char *const *tc_names(void) { return names; }

/* Their addresses, in the order of `tc_names`. Called once, before any other function that reads records. */
TC_EXPORT void tc_bind(void *const *addresses) { memcpy(&rd, addresses, sizeof rd); }
