/* Fuzz target of the chat templates: any bytes are refused, or render within their limits. The
 * input is a template, rendered with one small conversation. */
#include <stdlib.h>

#include "fuzz.h"
#include "text/template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct sn_render_opts opts = {
        .limits = {.max_steps = 50000, .max_output_bytes = 1 << 20, .max_memory_bytes = 16 << 20}};
    struct sn_heap heap;
    struct sn_buf text;
    struct sn_span_list spans;
    struct sn_template *t;
    struct sennit_error err = {.message = ""};
    json_t *vars =
        json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:b,s:s,s:[i,f,n]}", "messages", "role", "user",
                  "content", " h\u00e9llo <|im_end|>\n", "role", "assistant", "content", "ok",
                  "add_generation_prompt", 1, "bos_token", "<s>", "tools", 1, 2.5);
    if (!vars)
        abort();
    sn_heap_init(&heap, NULL);
    sn_buf_init(&text, &heap, SN_USE_TEXT, SIZE_MAX);
    sn_span_list_init(&spans, &heap);
    sennit_status status = sn_template_parse(&t, &heap, (const char *)data, n_bytes, &err);
    if (status == SENNIT_OK)
        status = sn_template_render(t, vars, &opts, &text, &spans, &err);
    if (status == SENNIT_INTERNAL || (status != SENNIT_OK && err.message[0] == '\0'))
        abort();
    if (text.len != (spans.n ? spans.items[spans.n - 1].end : 0))
        abort();
    sn_template_free(t);
    sn_buf_free(&text);
    sn_span_list_free(&spans);
    json_decref(vars);
    if (atomic_load(&heap.total) != 0)
        abort();
    return 0;
}
