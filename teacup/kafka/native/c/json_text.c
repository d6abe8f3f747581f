/* The texts of values that json.c has found. */
#include <stdbool.h>
#include <string.h>

#include "export.h"
#include "json.h"

static int32_t hex4(const char *at) { /* four digits, as json.c has seen */
        int32_t found = 0;
        for (int i = 0; i < 4; i++) {
                char c = at[i];
                found = found << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        return found;
}

static char *put_utf8(char *out, int32_t c) {
        if (c < 0x80) {
                *out++ = (char)c;
                return out;
        }
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        *out++ = (char)((0xff00 >> (more + 1) & 0xff) | c >> 6 * more);
        while (more--) *out++ = (char)(0x80 | (c >> 6 * more & 0x3f));
        return out;
}

int64_t tc_unescaped(const char *at, const char *end, char *out) {
        static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
        char *begin = out;
        while (at < end) {
                if (*at != '\\') {
                        *out++ = *at++;
                        continue;
                }
                char letter = at[1];
                at += 2;
                if (letter != 'u') {
                        const char *found = strchr(letters, letter);
                        *out++ = found ? meant[found - letters] : letter;
                        continue;
                }
                int32_t c = hex4(at);
                at += 4;
                if (c >= 0xd800 && c < 0xe000) {
                        bool pair = c < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u';
                        int32_t low = pair ? hex4(at + 2) : 0;
                        if (low < 0xdc00 || low >= 0xe000) return -1;
                        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                        at += 6;
                }
                out = put_utf8(out, c);
        }
        return out - begin;
}

/* Write the text of each value, as a join key has it: a string without quotes and escapes, digits and words as they are,
 * -0 as 0; nothing for any other. What turns out to be half a surrogate pair is said in `holds`.
 *
 * data, spans, holds   as `tc_json_fields` gave them for one field        rows   how many
 * offsets              rows + 1 numbers, all written                      out    room for the bytes of all spans */
TC_EXPORT void tc_json_texts(const char *data, const int32_t *spans, uint8_t *holds, int64_t rows, int32_t *offsets,
                             char *out) {
        char *at = out;
        for (int64_t row = 0; row < rows; row++) {
                offsets[row] = (int32_t)(at - out);
                const char *from = data + spans[2 * row], *to = data + spans[2 * row + 1];
                int64_t size = 0;
                switch (holds[row]) {
                case TC_ESCAPED:
                        size = tc_unescaped(from + 1, to - 1, at);
                        if (size < 0) {
                                holds[row] = TC_HALF;
                                size = 0;
                        }
                        break;
                case TC_PLAIN:
                        size = to - from - 2;
                        memcpy(at, from + 1, (size_t)size);
                        break;
                case TC_WHOLE:
                case TC_NUMBER:
                case TC_WORD:
                        size = to - from;
                        if (size == 2 && !memcmp(from, "-0", 2)) from++, size--;
                        memcpy(at, from, (size_t)size);
                        break;
                default: break;
                }
                at += size;
        }
        offsets[rows] = (int32_t)(at - out);
}

/* Write each value as it stands there. Otherwise as `tc_json_texts`. */
TC_EXPORT void tc_json_values(const char *data, const int32_t *spans, int64_t rows, int32_t *offsets, char *out) {
        int32_t at = 0;
        for (int64_t row = 0; row < rows; row++) {
                int32_t from = spans[2 * row], size = spans[2 * row + 1] - from;
                offsets[row] = at;
                if (size) memcpy(out + at, data + from, (size_t)size);
                at += size;
        }
        offsets[rows] = at;
}
