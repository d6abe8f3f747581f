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

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
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

typedef struct { /* an argument of `produceva`: what it is, and its value */
        int vtype;
        union {
                rd_kafka_topic_t *rkt;
                int i;
                int32_t i32;
                int64_t i64;
                struct {
                        void *ptr;
                        size_t size;
                } mem;
                rd_kafka_headers_t *headers;
                char pad[64];
        } u;
} rd_kafka_vu_t;

/* Interceptors. They return an error code. */
typedef int tc_on_new(rd_kafka_t *, const rd_kafka_conf_t *, void *opaque, char *text, size_t room);
typedef int tc_on_acknowledgement(rd_kafka_t *, rd_kafka_message_t *, void *opaque);
typedef int tc_on_request_sent(rd_kafka_t *, int socket, const char *broker, int32_t id, int16_t api, int16_t version,
                               int32_t correlation, size_t size, void *opaque);
typedef int tc_on_response_received(rd_kafka_t *, int socket, const char *broker, int32_t id, int16_t api, int16_t version,
                                    int32_t correlation, size_t size, int64_t took_us, int error, void *opaque);
typedef int tc_on_broker_state_change(rd_kafka_t *, int32_t id, const char *protocol, const char *host, int port,
                                      const char *state, void *opaque);

#define RDKAFKA(F)                                                                                                     \
        F(ssize_t, consume_batch_queue, (rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t room))      \
        F(void, message_destroy, (rd_kafka_message_t *))                                                               \
        F(int64_t, message_timestamp, (const rd_kafka_message_t *, int *type))                                         \
        F(int, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                                   \
        F(int, header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))           \
        F(const char *, message_errstr, (const rd_kafka_message_t *))                                                  \
        F(int, message_status, (const rd_kafka_message_t *))                                                           \
        F(rd_kafka_topic_t *, topic_new, (rd_kafka_t *, const char *name, void *conf))                                 \
        F(const char *, topic_name, (const rd_kafka_topic_t *))                                                        \
        F(void, topic_destroy, (rd_kafka_topic_t *))                                                                   \
        F(rd_kafka_headers_t *, headers_new, (size_t room))                                                            \
        F(int, header_add, (rd_kafka_headers_t *, const char *name, ssize_t, const void *value, ssize_t))              \
        F(void, headers_destroy, (rd_kafka_headers_t *))                                                               \
        F(rd_kafka_error_t *, produceva, (rd_kafka_t *, const rd_kafka_vu_t *, size_t))                                \
        F(int, error_code, (const rd_kafka_error_t *))                                                                 \
        F(void, error_destroy, (rd_kafka_error_t *))                                                                   \
        F(int, last_error, (void))                                                                                     \
        F(int, conf_interceptor_add_on_new, (rd_kafka_conf_t *, const char *name, tc_on_new *, void *opaque))          \
        F(int, interceptor_add_on_acknowledgement, (rd_kafka_t *, const char *name, tc_on_acknowledgement *, void *opaque)) \
        F(int, interceptor_add_on_request_sent, (rd_kafka_t *, const char *name, tc_on_request_sent *, void *opaque))   \
        F(int, interceptor_add_on_response_received,                                                                   \
          (rd_kafka_t *, const char *name, tc_on_response_received *, void *opaque))                                    \
        F(int, interceptor_add_on_broker_state_change,                                                                 \
          (rd_kafka_t *, const char *name, tc_on_broker_state_change *, void *opaque))

#define TC_POINTER(result, name, arguments) result(*name) arguments;
struct tc_rdkafka {
        RDKAFKA(TC_POINTER)
};

/* The functions: `rd.message_destroy(m)` is `rd_kafka_message_destroy(m)`. Set once, before anything else is called. */
extern struct tc_rdkafka rd;

enum { TC_STATUS_PERSISTED = 2 }; /* rd_kafka_msg_status_t */
enum { TC_MSG_F_COPY = 2 };
enum { /* rd_kafka_vtype_t */
        TC_VTYPE_RKT = 2,
        TC_VTYPE_PARTITION = 3,
        TC_VTYPE_VALUE = 4,
        TC_VTYPE_KEY = 5,
        TC_VTYPE_MSGFLAGS = 7,
        TC_VTYPE_TIMESTAMP = 8,
        TC_VTYPE_HEADERS = 10,
};
enum { TC_API_PRODUCE = 0 }; /* of the Kafka protocol */
enum { TC_ERROR_FAIL = -196, TC_ERROR_NO_RESOURCES = -194 };

#endif
