/* Producers as librdkafka reports them to the plugin. */
#ifndef TC_PLUGIN_H
#define TC_PLUGIN_H

#include "rdkafka.h"

struct tc_producer;

rd_kafka_t *tc_producer_handle(const struct tc_producer *producer);

#endif
