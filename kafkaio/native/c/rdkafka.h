/* The part of librdkafka that is called from here.
 *
 * Public and stable API, declared as in its own <rdkafka.h>, so that building needs no headers of librdkafka. Nothing is
 * linked: Python resolves the functions in the librdkafka that confluent-kafka has loaded, and `tc_bind` (bind.c) takes
 * their addresses, in the order of RDKAFKA.
 */
#ifndef TC_RDKAFKA_H
#define TC_RDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;

typedef struct {
        int err; /* 0: a record; otherwise an event, and its offset and text */
        rd_kafka_topic_t *rkt;
        int32_t partition;
        void *payload;
        size_t len;
        void *key;
        size_t key_len;
        int64_t offset;
        void *private_;
} rd_kafka_message_t;

#define RDKAFKA(F)                                                                                                     \
        F(ssize_t, consume_batch_queue, (rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t room))      \
        F(void, message_destroy, (rd_kafka_message_t *))                                                               \
        F(int64_t, message_timestamp, (const rd_kafka_message_t *, int *type))                                         \
        F(int, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                                   \
        F(int, header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))           \
        F(const char *, message_errstr, (const rd_kafka_message_t *))

#define TC_POINTER(result, name, arguments) result(*name) arguments;
struct tc_rdkafka {
        RDKAFKA(TC_POINTER)
};

/* The functions: `rd.message_destroy(m)` is `rd_kafka_message_destroy(m)`. Set once, before anything else is called. */
extern struct tc_rdkafka rd;

#define TC_EVENT_END_OF_PARTITION (-191)

#endif
