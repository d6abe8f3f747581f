/* Whether texts are JSON, as RFC 8259 defines it: no more, no less, to any depth; and where the values of some fields are.
 *
 * The texts are a column of Arrow strings, so they are UTF-8 already. A text is read once, from left to right; of each
 * open bracket one bit is remembered. Fields are found on the way: of several of one name the first counts.
 */
#include "json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "columns.h"
#include "export.h"

/* The open brackets, outermost first: bit set: an object. Kept between texts for its memory. */
typedef struct {
        tc_buffer bits;
        int64_t depth;
} nesting;

static int push(nesting *open, bool object) {
        if ((open->depth & 7) == 0 && open->depth >> 3 == open->bits.size) {
                if (tc_reserve(&open->bits, 1)) return -1;
                open->bits.data[open->bits.size++] = 0;
        }
        char *byte = open->bits.data + (open->depth >> 3);
        int bit = 1 << (open->depth & 7);
        *byte = (char)(object ? *byte | bit : *byte & ~bit);
        open->depth++;
        return 0;
}

static bool in_object(const nesting *open) {
        int64_t last = open->depth - 1;
        return open->bits.data[last >> 3] >> (last & 7) & 1;
}

/* A step of a path: the name of a member (`element` is -1), or the number of an element. */
typedef struct {
        const char *name;
        int64_t size, element;
} step;

/* A search for the value at a path: `inside` of its steps lead to the container that is open. */
typedef struct {
        const step *steps;
        int64_t count, inside;
        int64_t element; /* how many elements of that container have begun, if it is an array */
        int64_t depth;   /* how many brackets are open around the value that was found */
        enum { SEEKING, NEXT, FOUND, OVER } state; /* NEXT: the value that begins now is that of the next step */
        const char *from, *to;                     /* the value; NULL: there is none, or it has not ended */
} search;

/* What the texts of a column have in common. */
typedef struct {
        nesting open;
        tc_buffer name; /* without its escapes */
        search *fields;
        int64_t count;
} scan;

#define EACH_FIELD(field, of) (search *field = (of)->fields; field < (of)->fields + (of)->count; field++)

static void begin_text(scan *of) {
        of->open.depth = 0;
        for EACH_FIELD (field, of) {
                field->inside = field->element = 0;
                field->state = SEEKING;
                field->from = field->to = NULL;
        }
}

/* A name in the object that is open. Returns 0, or -1 where there is no memory. */
static int see_name(scan *of, const char *name, int64_t size) {
        bool wanted = false;
        for EACH_FIELD (field, of) wanted |= field->state == SEEKING && field->inside + 1 == of->open.depth;
        if (!wanted) return 0;
        if (memchr(name, '\\', (size_t)size)) {
                of->name.size = 0;
                if (tc_reserve(&of->name, size)) return -1;
                size = tc_unescaped(name, name + size, of->name.data);
                name = of->name.data;
        }
        for EACH_FIELD (field, of) {
                const step *next = field->steps + field->inside;
                if (field->state == SEEKING && field->inside + 1 == of->open.depth && next->element < 0 &&
                    next->size == size && !memcmp(next->name, name, (size_t)size))
                        field->state = NEXT;
        }
        return 0;
}

/* A value begins, a container with something in it or anything else. */
static void see_value(scan *of, const char *at, bool container) {
        for EACH_FIELD (field, of) {
                if (field->state == SEEKING && field->inside + 1 == of->open.depth && !in_object(&of->open) &&
                    field->element++ == field->steps[field->inside].element)
                        field->state = NEXT;
                if (field->state != NEXT) continue;
                if (field->inside + 1 == field->count) {
                        field->state = FOUND;
                        field->depth = of->open.depth;
                        field->from = at;
                } else if (container) {
                        field->state = SEEKING;
                        field->inside++;
                        field->element = 0;
                } else {
                        field->state = OVER;
                }
        }
}

/* A value has ended before `at`; so has everything in it. */
static void see_end(scan *of, const char *at) {
        for EACH_FIELD (field, of) {
                if (field->state == FOUND && field->depth == of->open.depth) {
                        field->state = OVER;
                        field->to = at;
                } else if (field->state == SEEKING && field->inside == of->open.depth) {
                        field->state = OVER; /* the container that it was sought in */
                }
        }
}

static const char *skip_space(const char *at, const char *end) {
        while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
        return at;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* Whether one of eight bytes ends a run of plain characters: a quote, a backslash, a control character. */
static bool any_special(const char *at) {
        const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
        uint64_t eight;
        memcpy(&eight, at, sizeof eight);
        uint64_t quote = eight ^ ones * '"', backslash = eight ^ ones * '\\';
        return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((eight - ones * 0x20) & ~eight)) & high;
}

/* The functions below are given the first character of what they read; they return what follows it, or NULL. */

static const char *read_string(const char *at, const char *end) {
        for (at++;;) {
                while (end - at >= 8 && !any_special(at)) at += 8;
                if (at == end) return NULL;
                char c = *at++;
                if (c == '"') return at;
                if ((unsigned char)c < 0x20) return NULL;
                if (c != '\\') continue;
                if (at == end) return NULL;
                c = *at++;
                if (c == 'u') {
                        if (end - at < 4 || !is_hex(at[0]) || !is_hex(at[1]) || !is_hex(at[2]) || !is_hex(at[3]))
                                return NULL;
                        at += 4;
                } else if (!c || !strchr("\"\\/bfnrt", c)) {
                        return NULL;
                }
        }
}

static const char *read_digits(const char *at, const char *end) { /* at least one */
        const char *from = at;
        while (at < end && is_digit(*at)) at++;
        return at == from ? NULL : at;
}

static const char *read_number(const char *at, const char *end) {
        if (*at == '-') at++;
        if (at < end && *at == '0')
                at++;
        else if (!(at = read_digits(at, end)))
                return NULL;
        if (at < end && *at == '.' && !(at = read_digits(at + 1, end))) return NULL;
        if (at < end && (*at == 'e' || *at == 'E')) {
                at++;
                if (at < end && (*at == '+' || *at == '-')) at++;
                at = read_digits(at, end);
        }
        return at;
}

static const char *read_word(const char *at, const char *end, const char *word) {
        size_t size = strlen(word);
        return (size_t)(end - at) >= size && !memcmp(at, word, size) ? at + size : NULL;
}

static const char *read_scalar(const char *at, const char *end) {
        switch (*at) {
        case '"': return read_string(at, end);
        case 't': return read_word(at, end, "true");
        case 'f': return read_word(at, end, "false");
        case 'n': return read_word(at, end, "null");
        default: return read_number(at, end);
        }
}

/* A name and its colon, with the space around them. NULL: it is none; `failed` then says whether memory was missing. */
static const char *read_name(const char *at, const char *end, scan *of, bool *failed) {
        at = skip_space(at, end);
        if (at == end || *at != '"') return NULL;
        const char *name = at + 1;
        if (!(at = read_string(at, end))) return NULL;
        if (see_name(of, name, at - 1 - name)) {
                *failed = true;
                return NULL;
        }
        at = skip_space(at, end);
        return at < end && *at == ':' ? at + 1 : NULL;
}

/* 1: it is JSON, 0: it is not, -1: no memory. */
static int is_json(const char *at, const char *end, scan *of) {
        nesting *open = &of->open;
        bool failed = false;
        begin_text(of);
        for (;;) { /* a value begins */
                at = skip_space(at, end);
                if (at == end) return 0;
                if (*at == '{' || *at == '[') {
                        bool object = *at == '{';
                        const char *next = skip_space(at + 1, end);
                        bool empty = next < end && *next == (object ? '}' : ']');
                        see_value(of, at, !empty);
                        if (empty) {
                                at = next + 1;
                        } else {
                                if (push(open, object)) return -1;
                                at = object ? read_name(next, end, of, &failed) : next;
                                if (!at) return failed ? -1 : 0;
                                continue;
                        }
                } else {
                        see_value(of, at, false);
                        if (!(at = read_scalar(at, end))) return 0;
                }
                for (;;) { /* a value has ended */
                        see_end(of, at);
                        at = skip_space(at, end);
                        if (open->depth == 0) return at == end;
                        if (at == end) return 0;
                        bool object = in_object(open);
                        if (*at == (object ? '}' : ']')) {
                                open->depth--;
                                at++;
                        } else if (*at == ',') {
                                at = object ? read_name(at + 1, end, of, &failed) : at + 1;
                                if (!at) return failed ? -1 : 0;
                                break;
                        } else {
                                return 0;
                        }
                }
        }
}

static uint8_t kind_of(const char *from, const char *to) {
        switch (*from) {
        case 'n': return TC_NOTHING;
        case '"': return memchr(from, '\\', (size_t)(to - from)) ? TC_ESCAPED : TC_PLAIN;
        case '{':
        case '[': return TC_NESTED;
        case 't':
        case 'f': return TC_WORD;
        default:
                for (const char *at = from + 1; at < to; at++)
                        if (!is_digit(*at)) return TC_NUMBER;
                return TC_WHOLE;
        }
}

/* Whether each text of a column is JSON, as bits in Arrow's order (a null counts as JSON), and where it has the value of
 * each field.
 *
 * texts    a column of strings                                  rows     how many
 * names    a column of strings: the steps of all paths          elements for each step the number of the element, or -1
 * sizes    for each path how many of the steps are its own      paths    how many
 * answer   (rows + 7) / 8 bytes, all written
 * holds    for each path rows bytes, what json.h says of what a field holds; nothing if the text is not JSON
 * spans    for each path 2 * rows numbers: where in the column's data the value begins and ends; 0, 0: there is none
 *
 * Borrows everything for the call. Returns 0, or -1 where there was no memory. */
TC_EXPORT int tc_json_fields(const tc_column *texts, int64_t rows, const tc_column *names, const int64_t *elements,
                             const int64_t *sizes, int64_t paths, uint8_t *answer, uint8_t *holds, int32_t *spans) {
        int64_t steps = 0;
        for (int64_t path = 0; path < paths; path++) steps += sizes[path];
        step *step_of = calloc((size_t)steps + 1, sizeof *step_of);
        scan of = {.fields = calloc((size_t)paths + 1, sizeof(search)), .count = paths};
        int result = step_of && of.fields ? 0 : -1;
        memset(answer, 0, (size_t)((rows + 7) / 8));
        if (!result) {
                for (int64_t at = 0; at < steps; at++) {
                        tc_bytes_at name = tc_bytes_of(names, at);
                        step_of[at] = (step){name.at, (int64_t)name.size, elements[at]};
                }
                const step *next = step_of;
                for (int64_t path = 0; path < paths; next += sizes[path++])
                        of.fields[path] = (search){.steps = next, .count = sizes[path]};
        }
        for (int64_t row = 0; row < rows && !result; row++) {
                tc_bytes_at text = tc_bytes_of(texts, row);
                int ok = text.at ? is_json(text.at, text.at + text.size, &of) : 1;
                if (ok < 0) result = -1;
                if (ok > 0) answer[row >> 3] |= (uint8_t)(1 << (row & 7));
                for (int64_t path = 0; path < paths; path++) {
                        const search *field = of.fields + path;
                        int32_t *span = spans + 2 * (path * rows + row);
                        bool found = text.at && ok > 0 && field->to;
                        holds[path * rows + row] = found ? kind_of(field->from, field->to) : TC_NOTHING;
                        span[0] = found ? (int32_t)(field->from - texts->data) : 0;
                        span[1] = found ? (int32_t)(field->to - texts->data) : 0;
                }
        }
        tc_free(&of.open.bits);
        tc_free(&of.name);
        free(of.fields);
        free(step_of);
        return result;
}
