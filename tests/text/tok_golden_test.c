/* Token ids against the references: `twins` (small vocabularies, one per pre-tokenizer), `smollm2`
 * (needs the model file), `shared` (the published vocabularies and their texts). */
#include "text/tok_support.h"

static size_t compare(const char *what, size_t index, const int32_t *got, size_t n, json_t *want)
{
    bool same = n == json_array_size(want);
    for (size_t i = 0; same && i < n; i++)
        same = got[i] == json_integer_value(json_array_get(want, i));
    if (same)
        return 0;
    fprintf(stderr, "%s: string %zu: got", what, index);
    for (size_t i = 0; i < n && i < 40; i++)
        fprintf(stderr, " %d", got[i]);
    fprintf(stderr, "\n    want");
    for (size_t i = 0; i < json_array_size(want) && i < 40; i++)
        fprintf(stderr, " %d", (int)json_integer_value(json_array_get(want, i)));
    fputc('\n', stderr);
    return 1;
}

static size_t compare_all(const struct sn_tokenizer *t, struct sn_heap *heap, const char *what,
                          json_t *strings, json_t *ids)
{
    struct sn_tokens out;
    sn_tokens_init(&out, heap);
    size_t wrong = 0, n = json_array_size(strings);
    CHECK(n >= 500 && n == json_array_size(ids), "%s: %zu strings", what, n);
    for (size_t i = 0; i < n; i++) {
        json_t *s = json_array_get(json_array_get(strings, i), 0);
        encode(t, json_string_value(s), json_string_length(s), 0, &out);
        wrong += compare(what, i, out.ids, out.n, json_array_get(ids, i));
    }
    sn_tokens_free(&out);
    printf("%s: %zu of %zu strings equal\n", what, n - wrong, n);
    return wrong;
}

static int run_twins(struct sn_heap *heap)
{
    static const char *const pres[] = {"gpt-2",          "starcoder",    "llama-bpe",   "qwen2",
                                       "deepseek-coder", "deepseek-llm", "deepseek-v3", "falcon",
                                       "tekken",         "gpt-4o"};
    json_t *strings = golden_load("strings.json");
    size_t wrong = 0;
    for (size_t i = 0; i < SN_ARRAY_LEN(pres); i++) {
        char name[64];
        snprintf(name, sizeof name, "twin-%s.json", pres[i]);
        json_t *twin = golden_load(name);
        struct sn_tokenizer *t = golden_tokenizer(heap, twin);
        wrong += compare_all(t, heap, pres[i], json_object_get(strings, "strings"),
                             json_object_get(twin, "ids"));
        sn_tokenizer_free(t);
        json_decref(twin);
    }
    json_decref(strings);
    return wrong > 0;
}

static size_t compare_special(const struct sn_tokenizer *t, struct sn_heap *heap, json_t *cases)
{
    struct sn_tokens out;
    sn_tokens_init(&out, heap);
    size_t wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *c = json_array_get(cases, i), *s = json_object_get(c, "text");
        encode(t, json_string_value(s), json_string_length(s), SN_TOK_PARSE_SPECIAL, &out);
        wrong += compare("special", i, out.ids, out.n, json_object_get(c, "ids"));
    }
    sn_tokens_free(&out);
    return wrong;
}

/* Every control token's text, alone, twice, and inside other text, read as plain text. */
static void check_control_texts(const struct sn_tokenizer *t, struct sn_heap *heap)
{
    struct sn_tokens out;
    struct sn_buf text;
    sn_tokens_init(&out, heap);
    sn_buf_init(&text, heap, SN_USE_TEXT, 1 << 20);
    size_t n = 0;
    for (int32_t id = 0; id < (int32_t)sn_tokenizer_vocab_size(t); id++) {
        const char *s;
        size_t len;
        if (!sn_token_is_control(t, id))
            continue;
        n++;
        CHECK(sn_token_text(t, id, &s, &len) == SENNIT_OK, "text of %d", id);
        encode(t, s, len, SN_TOK_PARSE_SPECIAL, &out);
        CHECK(out.n == 1 && out.ids[0] == id, "token %d is not found in trusted text", id);
        text.len = 0;
        sn_buf_printf(&text, "%.*s x%.*s%.*s\n", (int)len, s, (int)len, s, (int)len, s);
        encode(t, text.data, text.len, 0, &out);
        for (size_t k = 0; k < out.n; k++)
            CHECK(!sn_token_is_control(t, out.ids[k]), "'%s' gives control token %d", text.data,
                  out.ids[k]);
    }
    CHECK(n > 0, "no control tokens");
    sn_tokens_free(&out);
    sn_buf_free(&text);
}

static int run_smollm2(struct sn_heap *heap)
{
    const char *path = smollm2_path();
    if (!path) {
        printf("SKIPPED: the SmolLM2 file is not here; scripts/quickstart.sh fetches it, or set "
               "SENNIT_SMOLLM2\n");
        return TEST_SKIPPED;
    }
    struct gguf_vocab v;
    struct sn_tokenizer *t;
    struct sennit_error err;
    gguf_vocab_open(&v, heap, path);
    CHECK(sn_tokenizer_create(&t, heap, &v.desc, NULL, NULL, &err) == SENNIT_OK, "%s", err.message);
    json_t *strings = golden_load("strings.json"), *golden = golden_load("smollm2.json");
    CHECK((size_t)json_integer_value(json_object_get(golden, "n_tokens")) ==
              sn_tokenizer_vocab_size(t),
          "size");
    size_t wrong = compare_all(t, heap, "smollm2", json_object_get(strings, "strings"),
                               json_object_get(golden, "ids"));
    wrong += compare_special(t, heap, json_object_get(golden, "special"));
    check_control_texts(t, heap);
    json_t *peer = json_object_get(
        golden, "llama_cpp"); /* made with llama.cpp at hand, and no string differs */
    CHECK(json_is_string(json_object_get(peer, "version")) &&
              json_is_array(json_object_get(peer, "differ")) &&
              json_array_size(json_object_get(peer, "differ")) == 0,
          "smollm2.json was made without llama.cpp, or llama.cpp differs");
    CHECK(sn_tokenizer_eot(t) == 2 && sn_token_ends(t, 2) && sn_token_ends(t, 0) &&
              !sn_token_ends(t, 1),
          "ends");
    json_decref(strings);
    json_decref(golden);
    sn_tokenizer_free(t);
    gguf_vocab_close(&v);
    return wrong > 0;
}

/* ---- published vocabularies ---- */

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    CHECK(f, "cannot open %s", path);
    char *data = malloc(1 << 20);
    *n = fread(data, 1, (1 << 20) - 1, f);
    data[*n] = '\0';
    fclose(f);
    return data;
}

static const char separator[] = "\n__ggml_vocab_test__\n";

static size_t compare_texts(const struct sn_tokenizer *t, struct sn_heap *heap, const char *name,
                            char *inp, char *out)
{
    struct sn_tokens ids;
    sn_tokens_init(&ids, heap);
    size_t wrong = 0, n = 0;
    for (char *line = out; *line; n++) {
        char *end = strstr(inp, separator), *line_end = strchr(line, '\n');
        CHECK(line_end && (end || !strchr(line_end, ' ')), "%s: fewer texts than lines", name);
        encode(t, inp, end ? (size_t)(end - inp) : strlen(inp), 0, &ids);
        json_t *want = json_array();
        for (char *p = line; p < line_end;) {
            json_array_append_new(want, json_integer(strtol(p, &p, 10)));
            p += strspn(p, " ");
        }
        wrong += compare(name, n, ids.ids, ids.n, want);
        json_decref(want);
        line = line_end + 1;
        inp = end ? end + sizeof separator - 1 : inp + strlen(inp);
    }
    CHECK(*inp == '\0' && n > 30, "%s: %zu texts", name, n);
    printf("%s: %zu of %zu texts equal\n", name, n - wrong, n);
    sn_tokens_free(&ids);
    return wrong;
}

static size_t run_shared_one(struct sn_heap *heap, const char *name)
{
    char rel[128];
    size_t n;
    struct gguf_vocab v;
    struct sn_tokenizer *t;
    struct sennit_error err;
    snprintf(rel, sizeof rel, "data/vocab/ggml-vocab-%s.gguf", name);
    gguf_vocab_open(&v, heap, shared_path(rel));
    CHECK(sn_tokenizer_create(&t, heap, &v.desc, NULL, NULL, &err) == SENNIT_OK, "%s", err.message);
    strcat(rel, ".inp");
    char *inp = read_file(shared_path(rel), &n);
    strcpy(strstr(rel, ".inp"), ".out");
    char *out = read_file(shared_path(rel), &n);
    size_t wrong = compare_texts(t, heap, name, inp, out);
    check_control_texts(t, heap);
    free(inp);
    free(out);
    sn_tokenizer_free(t);
    gguf_vocab_close(&v);
    return wrong;
}

static int run_shared(struct sn_heap *heap)
{
    static const char *const names[] = {"gpt-2", "deepseek-coder", "falcon"};
    size_t wrong = 0;
    if (!shared_path("data/vocab/ggml-vocab-gpt-2.gguf")) {
        printf("SKIPPED: data/vocab is not in SENNIT_SHARED or beside the source tree\n");
        return TEST_SKIPPED;
    }
    for (size_t i = 0; i < SN_ARRAY_LEN(names); i++)
        wrong += run_shared_one(heap, names[i]);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    const char *what = argc > 1 ? argv[1] : "twins";
    int rc = strcmp(what, "twins") == 0     ? run_twins(&heap)
             : strcmp(what, "smollm2") == 0 ? run_smollm2(&heap)
                                            : run_shared(&heap);
    CHECK(atomic_load(&heap.total) == 0, "leak of %zu bytes", atomic_load(&heap.total));
    return rc;
}
