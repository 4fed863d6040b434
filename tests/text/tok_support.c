#include "text/tok_support.h"

#include <unistd.h>

#include "text/utf8.h"

/* ---- golden files ---- */

json_t *golden_load(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/text/golden/%s", SENNIT_SOURCE_DIR, name);
    json_error_t e;
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &e);
    CHECK(j, "%s:%d: %s", path, e.line, e.text);
    return j;
}

static const char *string_at(json_t *array, size_t i, size_t *len)
{
    json_t *s = json_array_get(array, i);
    *len = json_string_length(s);
    return json_string_value(s);
}

static const char *golden_token(void *ctx, size_t i, size_t *len)
{
    return string_at(json_object_get(ctx, "tokens"), i, len);
}

static const char *golden_merge(void *ctx, size_t i, size_t *len)
{
    return string_at(json_object_get(ctx, "merges"), i, len);
}

struct sn_vocab_desc golden_desc(json_t *twin)
{
    struct sn_vocab_desc d = SN_VOCAB_DESC_INIT;
    d.model = "gpt2";
    d.pre = json_string_value(json_object_get(twin, "pre"));
    d.n_tokens = json_array_size(json_object_get(twin, "tokens"));
    d.n_merges = json_array_size(json_object_get(twin, "merges"));
    d.token = golden_token;
    d.merge = golden_merge;
    d.ctx = twin;
    return d;
}

struct sn_tokenizer *golden_tokenizer(struct sn_heap *heap, json_t *twin)
{
    struct sn_vocab_desc d = golden_desc(twin);
    struct sn_tokenizer *t;
    struct sennit_error err;
    CHECK(sn_tokenizer_create(&t, heap, &d, NULL, NULL, &err) == SENNIT_OK, "%s", err.message);
    return t;
}

/* ---- GGUF ---- */

static const char *array_string(const struct sn_gguf_array *a, size_t i, size_t *len)
{
    struct sn_gguf_str s = sn_gguf_array_str(a, i);
    *len = s.len;
    return s.data;
}

static const char *gguf_token(void *ctx, size_t i, size_t *len)
{
    return array_string(&((struct gguf_vocab *)ctx)->tokens, i, len);
}

static const char *gguf_merge(void *ctx, size_t i, size_t *len)
{
    return array_string(&((struct gguf_vocab *)ctx)->merges, i, len);
}

static int32_t id_of(const struct sn_gguf *g, const char *key)
{
    uint32_t id;
    return sn_gguf_u32(g, key, &id, NULL) == SENNIT_OK ? (int32_t)id : -1;
}

static char *string_of(const struct sn_gguf *g, const char *key)
{
    struct sn_gguf_str s;
    return sn_gguf_str(g, key, &s, NULL) == SENNIT_OK ? strndup(s.data, s.len) : NULL;
}

static int flag_of(const struct sn_gguf *g, const char *key)
{
    bool b;
    return sn_gguf_bool(g, key, &b, NULL) == SENNIT_OK ? (int)b : SN_UNSET;
}

void gguf_vocab_open(struct gguf_vocab *v, struct sn_heap *heap, const char *path)
{
    *v = (struct gguf_vocab){.desc = SN_VOCAB_DESC_INIT};
    struct sennit_error err;
    CHECK(sn_gguf_open(&v->gguf, heap, path, &err) == SENNIT_OK, "%s", err.message);
    const struct sn_gguf *g = v->gguf;
    struct sn_gguf_array types;
    CHECK(sn_gguf_array(g, "tokenizer.ggml.tokens", SN_GGUF_STRING, &v->tokens, &err) ==
                  SENNIT_OK &&
              sn_gguf_array(g, "tokenizer.ggml.merges", SN_GGUF_STRING, &v->merges, &err) ==
                  SENNIT_OK &&
              sn_gguf_array(g, "tokenizer.ggml.token_type", SN_GGUF_I32, &types, &err) == SENNIT_OK,
          "%s", err.message);
    CHECK(types.n == v->tokens.n, "%zu types, %zu tokens", types.n, v->tokens.n);
    v->types = malloc(types.n * sizeof *v->types);
    for (size_t i = 0; i < types.n; i++)
        v->types[i] = sn_gguf_array_i32(&types, i);
    v->model = string_of(g, "tokenizer.ggml.model");
    v->pre = string_of(g, "tokenizer.ggml.pre");
    v->desc.model = v->model;
    v->desc.pre = v->pre;
    v->desc.n_tokens = v->tokens.n;
    v->desc.n_merges = v->merges.n;
    v->desc.token = gguf_token;
    v->desc.merge = gguf_merge;
    v->desc.ctx = v;
    v->desc.types = v->types;
    v->desc.bos = id_of(g, "tokenizer.ggml.bos_token_id");
    v->desc.eos = id_of(g, "tokenizer.ggml.eos_token_id");
    v->desc.add_bos = flag_of(g, "tokenizer.ggml.add_bos_token");
    v->desc.add_eos = flag_of(g, "tokenizer.ggml.add_eos_token");
}

void gguf_vocab_close(struct gguf_vocab *v)
{
    sn_gguf_close(v->gguf);
    free(v->types);
    free(v->model);
    free(v->pre);
}

const char *smollm2_path(void)
{
    static char path[1024];
    const char *p = getenv("SENNIT_SMOLLM2");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (p && *p)
        snprintf(path, sizeof path, "%s", p);
    else if (cache && *cache)
        snprintf(path, sizeof path, "%s/sennit/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/sennit/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home ? home : "");
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *shared_path(const char *name)
{
    static char path[1024];
    const char *dir = getenv("SENNIT_SHARED");
    snprintf(path, sizeof path, "%s/%s", dir && *dir ? dir : SENNIT_SHARED_DIR, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

/* ---- a vocabulary made by hand ---- */

const char *const small_special[] = {"<|end|>",
                                     "<|im_start|>",
                                     "<|im_end|>",
                                     "<|im_end|>x",
                                     "control me",
                                     "<unk>",
                                     /* user-defined: */ "[USER]",
                                     "  ",
                                     "<|e",
                                     NULL};
static const char *const small_tokens[] = {"he", "ll", "hell", "hello", "Ġhello", NULL};
static const char *const small_merges[] = {"h e", "l l", "he ll", "hell o", "Ġ hello", NULL};

static const char *small_token(void *ctx, size_t i, size_t *len)
{
    const char *name = ((struct small_vocab *)ctx)->names[i];
    *len = strlen(name);
    return name;
}

static const char *small_merge(void *ctx, size_t i, size_t *len)
{
    (void)ctx;
    *len = strlen(small_merges[i]);
    return small_merges[i];
}

void small_vocab_init(struct small_vocab *v)
{
    memset(v, 0, sizeof *v);
    size_t n = 0;
    unsigned other = 0x100;
    for (unsigned b = 0; b < 256; b++, n++) {
        bool itself = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        v->names[n][sn_utf8_put(v->names[n], itself ? b : other++)] = '\0';
        v->types[n] = SN_TOKEN_NORMAL;
    }
    for (size_t i = 0; small_tokens[i]; i++, n++) {
        strcpy(v->names[n], small_tokens[i]);
        v->types[n] = SN_TOKEN_NORMAL;
    }
    for (size_t i = 0; small_special[i]; i++, n++) {
        strcpy(v->names[n], small_special[i]);
        v->types[n] = i < SMALL_CONTROL ? SN_TOKEN_CONTROL : SN_TOKEN_USER_DEFINED;
    }
    struct sn_vocab_desc d = SN_VOCAB_DESC_INIT;
    d.model = "gpt2";
    d.pre = "gpt-2";
    d.n_tokens = n;
    d.n_merges = SN_ARRAY_LEN(small_merges) - 1;
    d.token = small_token;
    d.merge = small_merge;
    d.ctx = v;
    d.types = v->types;
    v->desc = d;
}

/* ---- shorthands ---- */

void encode(const struct sn_tokenizer *t, const char *text, size_t n, unsigned flags,
            struct sn_tokens *out)
{
    struct sennit_error err;
    out->n = 0;
    CHECK(sn_tokenize(t, text, n, flags, out, NULL, &err) == SENNIT_OK, "%s", err.message);
}

void decode(const struct sn_tokenizer *t, const int32_t *ids, size_t n, bool skip_control,
            struct sn_buf *out)
{
    struct sn_detok d;
    struct sennit_error err;
    out->len = 0;
    sn_detok_init(&d, t, skip_control);
    for (size_t i = 0; i < n; i++)
        CHECK(sn_detok_feed(&d, ids[i], out, &err) == SENNIT_OK, "%s", err.message);
    CHECK(sn_detok_flush(&d, out, &err) == SENNIT_OK, "%s", err.message);
}
