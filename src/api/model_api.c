/* Models and model files: validate, then call inward. */
#include "api/owned.h"
#include "model/model.h"
#include "tensor/traits.h"

sennit_status sennit_model_open(struct sennit_model **out, const char *path,
                                const struct sennit_model_options *options, struct sennit_error *err)
{
    if (!out || !path)
        return sn_fail(err, SENNIT_INVALID, "out and path must not be NULL");
    return sn_model_open(out, path, options, err);
}

void sennit_model_free(struct sennit_model *model) { sn_model_free(model); }

const struct sennit_model_info *sennit_model_get_info(const struct sennit_model *model) { return &model->info; }

const struct sennit_tokenizer *sennit_model_tokenizer(const struct sennit_model *model) { return &model->vocab; }

/* ---- describing a file ----------------------------------------------------------------------------------------- */

enum { ITEMS_SHOWN = 8 };
static const size_t MOST_TEXT = (size_t)256 << 20;

static sennit_status put_dims(struct sn_buf *b, const struct sn_gguf_tensor *t)
{
    for (uint32_t i = 0; i < t->n_dims; i++)
        SN_TRY(sn_buf_printf(b, "%s%llu", i ? ", " : "", (unsigned long long)t->dims[i]));
    return SENNIT_OK;
}

static sennit_status describe_text(const struct sn_gguf *g, struct sn_buf *b)
{
    SN_TRY(sn_buf_printf(b, "GGUF version %u, %zu bytes, %zu keys, %zu tensors\n\n", sn_gguf_version(g),
                         sn_gguf_file_bytes(g), sn_gguf_n_kv(g), sn_gguf_n_tensors(g)));
    for (size_t i = 0; i < sn_gguf_n_kv(g); i++) {
        struct sn_gguf_kv kv;
        sn_gguf_kv_at(g, i, &kv);
        SN_TRY(sn_buf_append(b, kv.key.data, kv.key.len));
        SN_TRY(sn_buf_printf(b, " = "));
        SN_TRY(sn_gguf_format_value(g, i, b, ITEMS_SHOWN));
        SN_TRY(sn_buf_printf(b, "\n"));
    }
    SN_TRY(sn_buf_printf(b, "\n"));
    for (size_t i = 0; i < sn_gguf_n_tensors(g); i++) {
        const struct sn_gguf_tensor *t = sn_gguf_tensor_at(g, i);
        const struct sn_traits *tr = sn_traits(t->type);
        SN_TRY(sn_buf_printf(b, "%-40.*s %-8s [", (int)t->name.len, t->name.data, tr->name));
        SN_TRY(put_dims(b, t));
        SN_TRY(sn_buf_printf(b, "]%s\n", tr->is_weight ? "" : "  (cannot be run)"));
    }
    return SENNIT_OK;
}

/* A name as a JSON string. Keys and names are short; other than printable ASCII is escaped bytewise as Latin-1. */
static sennit_status put_json_name(struct sn_buf *b, struct sn_gguf_str s)
{
    SN_TRY(sn_buf_append(b, "\"", 1));
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c < 0x20 || c >= 0x7F || c == '"' || c == '\\')
            SN_TRY(sn_buf_printf(b, "\\u%04x", c));
        else
            SN_TRY(sn_buf_append(b, &s.data[i], 1));
    }
    return sn_buf_append(b, "\"", 1);
}

static sennit_status describe_json(const struct sn_gguf *g, struct sn_buf *b)
{
    SN_TRY(sn_buf_printf(b, "{\"format\": \"gguf\", \"version\": %u, \"file_bytes\": %zu, ", sn_gguf_version(g),
                         sn_gguf_file_bytes(g)));
    SN_TRY(sn_buf_printf(b, "\"content_hash\": \"%016llx\", \"metadata\": {",
                         (unsigned long long)sn_gguf_file_hash(g)));
    for (size_t i = 0; i < sn_gguf_n_kv(g); i++) {
        struct sn_gguf_kv kv;
        sn_gguf_kv_at(g, i, &kv);
        SN_TRY(sn_buf_printf(b, "%s", i ? ", " : ""));
        SN_TRY(put_json_name(b, kv.key));
        SN_TRY(sn_buf_printf(b, ": "));
        SN_TRY(sn_gguf_json_value(g, i, b, ITEMS_SHOWN));
    }
    SN_TRY(sn_buf_printf(b, "}, \"tensors\": ["));
    for (size_t i = 0; i < sn_gguf_n_tensors(g); i++) {
        const struct sn_gguf_tensor *t = sn_gguf_tensor_at(g, i);
        const struct sn_traits *tr = sn_traits(t->type);
        SN_TRY(sn_buf_printf(b, "%s{\"name\": ", i ? ", " : ""));
        SN_TRY(put_json_name(b, t->name));
        SN_TRY(sn_buf_printf(b, ", \"type\": \"%s\", \"runnable\": %s, \"bytes\": %zu, \"dims\": [", tr->name,
                             tr->is_weight ? "true" : "false", t->n_bytes));
        SN_TRY(put_dims(b, t));
        SN_TRY(sn_buf_printf(b, "]}"));
    }
    return sn_buf_printf(b, "]}");
}

sennit_status sennit_file_describe(const char *path, bool json, struct sennit_text *out, struct sennit_error *err)
{
    if (!path || !out)
        return sn_fail(err, SENNIT_INVALID, "path and out must not be NULL");
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    struct sn_gguf *g;
    SN_TRY(sn_gguf_open(&g, &heap, path, err));
    struct sn_buf b;
    sn_buf_init(&b, &heap, SN_USE_TEXT, MOST_TEXT);
    sennit_status st = json ? describe_json(g, &b) : describe_text(g, &b);
    if (st == SENNIT_OK)
        st = sn_own_text(&heap, b.data, b.len, out, err);
    else
        sn_fail(err, st, "no memory to describe %s", path);
    sn_buf_free(&b);
    sn_gguf_close(g);
    return st;
}
