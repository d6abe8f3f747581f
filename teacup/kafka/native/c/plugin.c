/* What becomes of the records of confluent-kafka's producers, how many of their produce requests are being answered, and
 * how many of their connections were lost: counted here, whoever produced them.
 *
 * This library is a plugin of librdkafka (`plugin.library.paths`): librdkafka loads it once more, which gives the same
 * library, and calls `conf_init`. From then on each client made with that configuration is reported (`on_new`), by the
 * thread that makes it, and so is each of its records that was acknowledged or has failed (`on_acknowledgement`), by
 * librdkafka's own threads. Delivery reports of confluent-kafka leave out records that it did not produce itself.
 *
 * A request that fails (time-out, lost connection) is reported as answered, also if it was never sent: so the number in
 * flight may be too small until all records are settled (`tc_producer_settled`), but never below zero.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "plugin.h"

enum { CODES_FROM = -256, CODES = 512 }; /* librdkafka's own are above -200, Kafka's below 150 */

struct tc_producer {
        rd_kafka_t *handle;
        atomic_llong acknowledged, failed, in_flight, lost;
        atomic_ullong codes[CODES / 64]; /* a bit for each code that a record has failed with */
        atomic_flag claimed;             /* by the first record that has failed */
        atomic_bool described;           /* what follows has been written, and is not written again */
        char *topic;
        int32_t partition, code;
};

static _Thread_local struct tc_producer *made; /* by the constructor that this thread has called last */

static void note(struct tc_producer *p, int code) {
        unsigned bit = (unsigned)(code - CODES_FROM);
        if (bit < CODES) atomic_fetch_or(&p->codes[bit / 64], 1ull << bit % 64);
}

static void describe(struct tc_producer *p, const rd_kafka_message_t *m, int code) {
        const char *topic = m->rkt ? rd.topic_name(m->rkt) : "";
        p->topic = malloc(strlen(topic) + 1);
        if (p->topic) strcpy(p->topic, topic);
        p->partition = m->partition;
        p->code = code;
        atomic_store_explicit(&p->described, true, memory_order_release);
}

static int on_acknowledgement(rd_kafka_t *handle, rd_kafka_message_t *m, void *opaque) {
        struct tc_producer *p = opaque;
        (void)handle;
        /* Where several records of a batch have errors of their own, `err` is 0 for all of them. */
        if (!m->err && rd.message_status(m) == TC_STATUS_PERSISTED) {
                atomic_fetch_add_explicit(&p->acknowledged, 1, memory_order_relaxed);
                return 0;
        }
        int code = m->err ? m->err : TC_ERROR_FAIL;
        note(p, code);
        if (!atomic_flag_test_and_set(&p->claimed)) describe(p, m, code);
        atomic_fetch_add(&p->failed, 1);
        return 0;
}

static int on_request_sent(rd_kafka_t *handle, int socket, const char *broker, int32_t id, int16_t api, int16_t version,
                           int32_t correlation, size_t size, void *opaque) {
        struct tc_producer *p = opaque;
        (void)handle, (void)socket, (void)broker, (void)id, (void)version, (void)correlation, (void)size;
        if (api == TC_API_PRODUCE) atomic_fetch_add(&p->in_flight, 1);
        return 0;
}

static int on_response_received(rd_kafka_t *handle, int socket, const char *broker, int32_t id, int16_t api, int16_t version,
                                int32_t correlation, size_t size, int64_t took_us, int error, void *opaque) {
        struct tc_producer *p = opaque;
        (void)handle, (void)socket, (void)broker, (void)id, (void)version, (void)correlation, (void)size;
        (void)took_us, (void)error;
        if (api != TC_API_PRODUCE) return 0;
        long long before = atomic_load(&p->in_flight);
        while (before > 0 && !atomic_compare_exchange_weak(&p->in_flight, &before, before - 1)) continue;
        return 0;
}

/* Bootstrap addresses have no id: librdkafka leaves them by itself. */
static int on_broker_state_change(rd_kafka_t *handle, int32_t id, const char *protocol, const char *host, int port,
                                  const char *state, void *opaque) {
        struct tc_producer *p = opaque;
        (void)handle, (void)protocol, (void)host, (void)port;
        if (id >= 0 && !strcmp(state, "DOWN")) atomic_fetch_add(&p->lost, 1);
        return 0;
}

static int on_new(rd_kafka_t *handle, const rd_kafka_conf_t *conf, void *opaque, char *text, size_t room) {
        (void)conf, (void)opaque, (void)text, (void)room;
        struct tc_producer *p = calloc(1, sizeof *p);
        if (!p) return TC_ERROR_NO_RESOURCES;
        p->handle = handle;
        atomic_flag_clear(&p->claimed);
        made = p;
        int failed = rd.interceptor_add_on_request_sent(handle, "teacup", on_request_sent, p);
        if (!failed) failed = rd.interceptor_add_on_response_received(handle, "teacup", on_response_received, p);
        if (!failed) failed = rd.interceptor_add_on_broker_state_change(handle, "teacup", on_broker_state_change, p);
        return failed ? failed : rd.interceptor_add_on_acknowledgement(handle, "teacup", on_acknowledgement, p);
}

/* librdkafka looks for this name. */
TC_EXPORT int conf_init(rd_kafka_conf_t *conf, void **opaque, char *text, size_t room) {
        (void)opaque, (void)text, (void)room;
        if (!rd.conf_interceptor_add_on_new) return TC_ERROR_FAIL; /* loaded by somebody else: nothing is bound */
        return rd.conf_interceptor_add_on_new(conf, "teacup", on_new, NULL);
}

/* The producer that this thread has made last, given out once; NULL: none. Whoever takes it frees it. */
TC_EXPORT struct tc_producer *tc_producer_made(void) {
        struct tc_producer *p = made;
        made = NULL;
        return p;
}

/* Only after its client was destroyed: until then records may be counted. */
TC_EXPORT void tc_producer_free(struct tc_producer *p) {
        free(p->topic);
        free(p);
}

rd_kafka_t *tc_producer_handle(const struct tc_producer *p) { return p->handle; }

/* What has become of a producer's records so far. */
typedef struct {
        int64_t acknowledged, failed; /* records */
        uint64_t codes[CODES / 64];
        const char *topic;       /* of the first that has failed; NULL: not known. It lives as long as the producer */
        int32_t partition, code; /* code 0: none has failed, or what is known of it is still being written */
} tc_counts;

TC_EXPORT void tc_producer_counts(struct tc_producer *p, tc_counts *to) {
        *to = (tc_counts){.failed = atomic_load(&p->failed), .acknowledged = atomic_load(&p->acknowledged)};
        for (int i = 0; i < CODES / 64; i++) to->codes[i] = atomic_load(&p->codes[i]);
        if (atomic_load_explicit(&p->described, memory_order_acquire)) {
                to->topic = p->topic;
                to->partition = p->partition;
                to->code = p->code;
        }
}

/* How many produce requests were sent, and not answered yet. */
TC_EXPORT int64_t tc_producer_in_flight(struct tc_producer *p) { return atomic_load(&p->in_flight); }

/* How often a connection to a broker was lost, or could not be made. */
TC_EXPORT int64_t tc_producer_lost(struct tc_producer *p) { return atomic_load(&p->lost); }

/* Every record was acknowledged or has failed: nothing is in flight, whatever was counted. */
TC_EXPORT void tc_producer_settled(struct tc_producer *p) { atomic_store(&p->in_flight, 0); }
