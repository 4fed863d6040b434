/* Completes a prompt: hello MODEL.gguf "The capital of France is" */
#include <sennit/sennit.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct sennit_error err;
    struct sennit_model *model;
    struct sennit_engine *engine;
    struct sennit_request *request;
    struct sennit_tokens input = {0};
    struct sennit_event event = {0};
    if (argc != 3 || sennit_model_open(&model, argv[1], NULL, &err) ||
        sennit_engine_create(&engine, model, NULL, &err) || sennit_engine_start(engine, &err) ||
        sennit_tokenize(sennit_model_tokenizer(model), argv[2], strlen(argv[2]), SENNIT_TOKENIZE_BOS, &input, &err) ||
        sennit_engine_submit(engine, &(struct sennit_request_options){
            .prompt = input.ids, .n_prompt = input.n_ids, .max_tokens = 32}, &request, &err))
        return fprintf(stderr, "%s\n", argc == 3 ? err.message : "usage: hello MODEL PROMPT"), 1;
    while (event.kind != SENNIT_EVENT_END && !sennit_request_next_event(request, &event, -1, &err))
        printf("%.*s", (int)event.n_text, event.text ? event.text : "");
    printf("\n[%s, digest %016llx]\n", sennit_finish_name(event.finish), (unsigned long long)event.digest);
    sennit_request_free(request);
    sennit_tokens_free(&input);
    sennit_engine_free(engine);
    sennit_model_free(model);
    return 0;
}
