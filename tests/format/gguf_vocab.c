/* Vocabulary files made by the format's own project: GGUF without tensors. */
#include "format/gguf.h"
#include "support/gguf_walk.h"
#include "support/shared.h"

struct vocabulary {
    const char *name, *model;
    size_t n_tokens;
};

/* What is wrong with the file, or NULL. */
static const char *check(const struct sn_gguf *g, const struct vocabulary *v,
                         struct sennit_error *err)
{
    struct sn_gguf_str model;
    struct sn_gguf_array tokens, types;
    if (sn_gguf_str(g, "tokenizer.ggml.model", &model, err) != SENNIT_OK)
        return err->message;
    if (model.len != strlen(v->model) || memcmp(model.data, v->model, model.len) != 0)
        return "another tokenizer model than expected";
    if (sn_gguf_array(g, "tokenizer.ggml.tokens", SN_GGUF_STRING, &tokens, err) != SENNIT_OK)
        return err->message;
    if (sn_gguf_array(g, "tokenizer.ggml.token_type", SN_GGUF_I32, &types, err) != SENNIT_OK)
        return err->message;
    if (tokens.n != v->n_tokens || types.n != tokens.n)
        return "another number of tokens than expected";
    return sn_gguf_n_tensors(g) == 0 ? NULL : "there are tensors";
}

static bool read_one(const struct vocabulary *v, const char *path)
{
    struct sn_heap heap;
    struct sn_gguf *g;
    struct sennit_error err;
    sn_heap_init(&heap, NULL);
    if (sn_gguf_open(&g, &heap, path, &err) != SENNIT_OK)
        return printf("FAILED: %s\n", err.message), false;
    const char *wrong = check(g, v, &err);
    gguf_walk(g);
    printf("%s: %zu keys, %zu tokens, %zu bytes of heap for %zu of file: %s\n", v->name,
           sn_gguf_n_kv(g), v->n_tokens, atomic_load(&heap.peak), sn_gguf_file_bytes(g),
           wrong ? wrong : "ok");
    sn_gguf_close(g);
    return !wrong && atomic_load(&heap.total) == 0;
}

int main(void)
{
    static const struct vocabulary all[] = {{"gpt-2", "gpt2", 50257},
                                            {"deepseek-coder", "gpt2", 32256},
                                            {"falcon", "gpt2", 65024},
                                            {"llama-spm", "llama", 32000},
                                            {"phi-3", "llama", 32064}};
    bool ok = true;
    for (size_t i = 0; i < SN_ARRAY_LEN(all); i++) {
        char path[512], relative[64];
        snprintf(relative, sizeof relative, "data/vocab/ggml-vocab-%s.gguf", all[i].name);
        if (!shared_path(path, sizeof path, relative)) {
            printf(
                "SKIPPED: %s is not there (set SENNIT_SHARED to the folder that has data/vocab)\n",
                path);
            return TEST_SKIPPED;
        }
        ok = read_one(&all[i], path) && ok;
    }
    return ok ? 0 : 1;
}
