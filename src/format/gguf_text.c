/* Metadata values as text: for people, and as JSON. */
#include "format/gguf_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHOWN_STRING_BYTES = 200 };

struct printer {
    struct sn_buf *out;
    bool json;
};

/* Length of the UTF-8 character at p, 0 when the bytes there are none (overlong, surrogate, cut
 * ...). */
static size_t utf8_length(const uint8_t *p, size_t n)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || len > n)
        return 0;
    uint32_t code = p[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3F);
    }
    return code < least[len] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : len;
}

/* Escape of an ASCII character that needs one, or NULL. */
static const char *escape(uint8_t ch, bool json, char text[8])
{
    switch (ch) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        if (ch >= 0x20 && ch != 0x7F)
            return NULL;
        snprintf(text, 8, json ? "\\u%04x" : "\\x%02x", ch);
        return text;
    }
}

static sennit_status put_string(struct printer *p, struct sn_gguf_str s)
{
    const uint8_t *b = (const uint8_t *)s.data;
    size_t i = 0;
    SN_TRY(sn_buf_append(p->out, "\"", 1));
    while (i < s.len && (p->json || i < SHOWN_STRING_BYTES)) {
        char text[8];
        size_t len = utf8_length(b + i, s.len - i);
        const char *escaped = len == 1 ? escape(b[i], p->json, text) : NULL;
        if (len == 0 && p->json)
            SN_TRY(sn_buf_append(p->out, "\xEF\xBF\xBD", 3));
        else if (len == 0)
            SN_TRY(sn_buf_printf(p->out, "\\x%02x", b[i]));
        else if (escaped)
            SN_TRY(sn_buf_append(p->out, escaped, strlen(escaped)));
        else
            SN_TRY(sn_buf_append(p->out, b + i, len));
        i += len ? len : 1;
    }
    if (i < s.len)
        return sn_buf_printf(p->out, "...\" (%zu bytes)", s.len);
    return sn_buf_append(p->out, "\"", 1);
}

static sennit_status put_real(struct printer *p, double v, int digits)
{
    char text[48];
    if (p->json && !isfinite(v))
        return sn_buf_append(p->out, "null", 4);
    int n = snprintf(text, sizeof text, "%.*g", digits, v);
    for (int i = 0; i < n; i++) /* a host program may have set a locale with a decimal comma */
        if (text[i] == ',')
            text[i] = '.';
    return sn_buf_append(p->out, text, (size_t)n);
}

/* Nine digits tell any two f32 apart, but 0.00001 reads better than 9.99999975e-06: the fewest that
 * do. */
static sennit_status put_f32(struct printer *p, float v)
{
    int digits = 6;
    for (; digits < 9; digits++) {
        char text[48];
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        float back = strtof(text, NULL);
        if (memcmp(&back, &v, sizeof v) == 0)
            break;
    }
    return put_real(p, (double)v, digits);
}

static sennit_status put_scalar(struct printer *p, uint32_t type, const uint8_t *data)
{
    bool negative;
    if (type == SN_GGUF_BOOL)
        return sn_buf_printf(p->out, "%s", data[0] ? "true" : "false");
    if (type == SN_GGUF_F32) {
        float v;
        memcpy(&v, data, sizeof v);
        return put_f32(p, v);
    }
    if (type == SN_GGUF_F64) {
        double v;
        memcpy(&v, data, sizeof v);
        return put_real(p, v, 17);
    }
    uint64_t v = gguf_load_int(type, data, &negative);
    if (negative)
        return sn_buf_printf(p->out, "%lld", (long long)v);
    return sn_buf_printf(p->out, "%llu", (unsigned long long)v);
}

static sennit_status put_array(struct printer *p, const struct sn_gguf_array *a, size_t max_items)
{
    size_t shown = sn_min_size(a->n, max_items), step = gguf_type_bytes(a->elem);
    SN_TRY(sn_buf_append(p->out, "[", 1));
    for (size_t i = 0; i < shown; i++) {
        if (i > 0)
            SN_TRY(sn_buf_append(p->out, ", ", 2));
        if (a->elem == SN_GGUF_STRING)
            SN_TRY(put_string(p, sn_gguf_array_str(a, i)));
        else
            SN_TRY(put_scalar(p, a->elem, a->data + i * step));
    }
    if (shown < a->n && !p->json)
        SN_TRY(sn_buf_printf(p->out, "%s... %zu in all", shown ? ", " : "", a->n));
    return sn_buf_append(p->out, "]", 1);
}

static sennit_status put_value(struct printer *p, const struct sn_gguf *g, size_t index,
                               size_t max_items)
{
    struct sn_gguf_kv kv;
    sn_gguf_kv_at(g, index, &kv);
    if (kv.type == SN_GGUF_ARRAY)
        return put_array(p, &kv.array, max_items);
    if (kv.type == SN_GGUF_STRING)
        return put_string(
            p, (struct sn_gguf_str){(const char *)kv.data + 8, (size_t)gguf_load(kv.data, 8)});
    return put_scalar(p, kv.type, kv.data);
}

sennit_status sn_gguf_format_value(const struct sn_gguf *g, size_t index, struct sn_buf *out,
                                   size_t max_items)
{
    return put_value(&(struct printer){.out = out}, g, index, max_items);
}

sennit_status sn_gguf_json_value(const struct sn_gguf *g, size_t index, struct sn_buf *out,
                                 size_t max_items)
{
    return put_value(&(struct printer){.out = out, .json = true}, g, index, max_items);
}
