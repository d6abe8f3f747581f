/* What json.c and json_text.c share: what a field holds, and texts without their escapes. */
#ifndef TC_JSON_H
#define TC_JSON_H

#include <stdint.h>

/* What a field holds, in the order of teacup/kafka/native/json.py. */
enum {
        TC_NOTHING, /* there is none, or a null */
        TC_PLAIN,   /* a string without escapes */
        TC_ESCAPED, /* a string with escapes */
        TC_HALF,    /* a string with half a surrogate pair, which no text can hold */
        TC_WHOLE,   /* a number of digits alone, with a sign or without */
        TC_NUMBER,  /* any other number */
        TC_WORD,    /* true, false */
        TC_NESTED,  /* an object, an array */
};

/* Write what stands between the quotes of a valid string to `out` (as many bytes at most) without its escapes. Returns
 * the bytes written, or -1 if there is half a surrogate pair. */
int64_t tc_unescaped(const char *at, const char *end, char *out);

#endif
