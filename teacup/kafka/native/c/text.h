/* Texts that are made of pieces, one text per row: those of teacup/kafka/write/templates.py. */
#ifndef TC_TEXT_H
#define TC_TEXT_H

#include "buffer.h"
#include "columns.h"

typedef enum {
        TC_LITERAL, /* `text`, the same in each row */
        TC_RAW,     /* the value of `column` (bytes) as it is */
        TC_STRING,  /* as a JSON string; bytes that are not UTF-8 as {"base64": "..."} */
        TC_BASE64,  /* as a JSON string of base64 */
        TC_NUMBER,  /* an integer, in decimal */
} tc_form;          /* a null is written as null */

typedef struct {
        const char *text;
        int64_t size;
        const tc_column *column;
        const tc_column *where; /* a boolean: the piece is written where it is `holds`; NULL: in each row */
        int32_t holds;
        int32_t form;
} tc_piece;

typedef struct {
        const tc_piece *pieces;
        int64_t count;
} tc_text;

/* Append a row's text; -1 where there is no memory: then a part of it may have been appended. */
int tc_append_text(const tc_text *text, int64_t row, tc_buffer *to);

#endif
