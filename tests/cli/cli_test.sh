#!/usr/bin/env bash
# Drives the program on a tiny model. usage: cli_test.sh CASE SENNIT TINY-MODEL JSON-GET
set -uo pipefail
case_=$1 sennit=$2 tiny=$3 get=$4
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export HOME=$tmp XDG_CACHE_HOME=$tmp/cache
fails=0
shared=${SENNIT_SHARED:-${SENNIT_SHARED_DIR:-/nonexistent}}

fail() { printf 'FAIL: %s\n' "$*"; fails=$((fails + 1)); }
# run CODE ARGUMENTS...: runs sennit, wants the exit code; output in out and err.
run() {
    local want=$1 got
    shift
    "$sennit" "$@" >out 2>err </dev/null
    got=$?
    [ $got = "$want" ] || { fail "exit $got instead of $want: sennit $*"; sed 's/^/    /' err | head -n 20; }
}
run_text() { # the same with a text on standard input: CODE TEXT ARGUMENTS...
    local want=$1 text=$2 got
    shift 2
    printf '%s' "$text" | "$sennit" "$@" >out 2>err
    got=${PIPESTATUS[1]}
    [ "$got" = "$want" ] || { fail "exit $got instead of $want: sennit $*"; sed 's/^/    /' err | head -n 20; }
}
says() { grep -qF -- "$2" "$1" || { fail "'$2' is not in $1 of the last command:"; head -n 20 "$1"; }; }
silent() { [ ! -s "$1" ] || { fail "$1 should be empty:"; head -n 5 "$1"; }; }
same() { [ "$1" = "$2" ] || fail "$3: '$1' and '$2'"; }
json() { "$get" "$@" <out || fail "no JSON as expected: $*"; }
digest() { # the digests of all rows of a generate
    "$sennit" generate -m tiny.gguf --json "$@" </dev/null 2>err >out || { fail "generate $*"; cat err; }
    json rows >rows.json
    grep -oE '"digest":"[0-9a-f]{16}"' rows.json
}
tiny_model() { "$tiny" --out tiny.gguf "$@" || fail "tiny-model"; }

case_help() {
    local c
    run 0 --help
    cp out commands
    for c in generate chat bench inspect tokenize render cache-families selftest; do
        says commands "  $c "
        run 0 "$c" --help
        says out "usage: sennit $c"
        says out "Examples:"
        says out "Exit codes:"
        silent err
        cp out first
        run 0 help "$c"
        cmp -s out first || fail "help $c differs from $c --help"
        [ "$(wc -L <out)" -le 118 ] || fail "a line of $c --help is too wide"
    done
    run 0 --version
    says out "sennit "
    run 2
    says err "usage: sennit COMMAND"
}

case_errors() {
    tiny_model
    if [ -w /dev/full ]; then # what is printed and does not arrive is a failure
        "$sennit" inspect tiny.gguf >/dev/full 2>err && fail "a full disk and exit code 0"
        says err "cannot write to standard output"
    fi
    run 2 genrate
    says err "did you mean 'sennit generate'"
    run 2 $'gen\e[2J\xc2\x9b2Jrate' # messages name what they were given, but give a terminal no orders
    says err "no command 'gen?[2J?2Jrate'"
    run 2 generate -m tiny.gguf --tmep 1
    says err "no option '--tmep'"
    says err "did you mean '--temp'"
    run 2 generate -m tiny.gguf --thread=2 -p x
    says err "did you mean '--threads'"
    run 2 generate -m tiny.gguf -x
    says err "no option '-x'"
    run 2 generate -m tiny.gguf -p x --threads two
    says err "--threads wants a whole number from 0 to 1024, not 'two'"
    run 2 generate -m tiny.gguf -p x --threads -1
    run 2 generate -m tiny.gguf -p x -n 12x
    run 2 generate -m tiny.gguf -p x --seed 18446744073709551616
    run 2 generate -m tiny.gguf -p x --temp nan
    run 2 generate -m tiny.gguf -p x --temp
    says err "--temp needs a value"
    run 2 generate -m tiny.gguf -p x --isa sse9
    says err "scalar|avx2|avx512"
    run 2 generate -m tiny.gguf -p x --cache-bytes 4Q
    run 2 generate -m tiny.gguf -p x --json=1
    says err "takes no value"
    run 2 generate -m tiny.gguf two words
    says err "does not know what to do with 'two'"
    run 2 generate -m tiny.gguf
    says err "a prompt is needed"
    run 2 generate -m tiny.gguf -p x -f y
    run 2 generate -p x
    says err "a model is needed"
    run 2 generate -m tiny.gguf -p x --logit-bias 5
    says err "ID=X"
    run 2 generate -m tiny.gguf -p x --logprobs 2
    says err "needs --json"
    run 2 generate -m tiny.gguf -p x --prompt-logprobs
    says err "needs --json"
    run 2 generate -m tiny.gguf -p x --system y
    run 2 generate -m tiny.gguf -p x --chat --special
    says err "leave out --chat"
    run 2 generate -m tiny.gguf -p ""
    says err "no tokens"
    run 2 bench -m tiny.gguf --rows 1,x
    run 2 render --template x
    run 2 inspect
    # Refused: both numbers in the message.
    run 4 generate -m tiny.gguf -p x -n 1000000
    says err "1000000"
    run 4 generate -m tiny.gguf -p x -n 64 --cache-bytes 1000
    says err "1000"
    silent out
}

# Every family of the library is listed, in text and in JSON, from one table.
case_cache_families() {
    local names n i
    run 2 cache-families no-such-family
    names=$(sed -n 's/.*there are: //p' err | tr -d ',') # the library's own list
    [ "$(wc -w <<<"$names")" -ge 7 ] || fail "too few families in: $names"
    run 0 cache-families
    silent err
    cp out table
    [ "$(wc -L <table)" -le 118 ] || fail "a line of cache-families is too wide"
    for n in $names; do
        grep -q "^$n  *[0-9]" table || fail "family '$n' is not in the table, or has no bytes"
        run 0 cache-families "$n"
        [ "$(wc -l <out)" = 3 ] && says out "$n"
    done
    run 0 cache-families --json
    same "$(json families#)" "$(wc -w <<<"$names")" "number of families"
    i=0
    for n in $names; do
        same "$(json families.$i.name)" "$n" "name"
        says table "  $(json families.$i.signature)" # what the text says too
        json families.$i.trimmable families.$i.rounds families.$i.publish families.$i.donor_rows \
            families.$i.bounded_span families.$i.copies_rows families.$i.row_bytes >/dev/null
        i=$((i + 1))
    done
    # Flags and bytes that are known from elsewhere: 3 heads of 64 in f16, pages of 64 tokens with a line of counters.
    run 0 cache-families plain --kv-heads 3 --d-k 64 --tokens 64 --json
    same "$(json tokens families.0.bytes_per_token families.0.row_bytes families.0.trimmable families.0.fields |
        tr '\n' ' ')" '64 769 49728 true ["heads","types","pages"] ' "plain"
    run 0 cache-families affine --kv-heads 3 --d-k 64 --bits 4 --tokens 64 --json
    same "$(json families.0.signature families.0.bytes_per_token | tr '\n' ' ')" \
        "affine k4 v4 g32 kv 3 k 64 v 64 241 " "affine"
    run 0 cache-families recurrent --kv-heads 2 --d-k 32 --kind mamba2 --json
    same "$(json families.0.bytes_per_token families.0.trimmable families.0.publish families.0.rounds | tr '\n' ' ')" \
        "0 false exact replay " "recurrent"
    run 0 cache-families recurrent --kv-heads 2 --d-k 32 --kind short-conv
    says out "recurrent short-conv conv 64x4"
    run 0 cache-families window --inner affine --window 512 --kept 4 --json
    same "$(json families.0.signature)" "window 512 slack 64 kept 4 / affine k8 v8 g32 kv 8 k 128 v 128" "window"
    run 0 cache-families composed --kv-heads 3 --d-k 64 --json # the geometry reaches the parts
    same "$(json families.0.signature | grep -o 'kv 3 k 64 v 64' | wc -l)" 2 "parts"
    # What a family cannot do is said in its place, and is no failure of the others.
    run 0 cache-families --bits 3
    says out "not in this geometry: "
    grep -q '^plain  *[0-9]' out || fail "plain has no bytes beside a refused family"
    run 0 cache-families affine --bits 3 --json
    same "$(json families.0.signature families.0.bytes_per_token | tr '\n' ' ')" "null null " "refused"
    run 2 cache-families --inner no-such-family
    says err "--inner: no cache family 'no-such-family'"
    run 2 cache-families --type f64
    run 2 cache-families --kv-heads 0
}

case_files() {
    tiny_model
    run 3 generate -m tinny.gguf -p x
    says err "there is no file 'tinny.gguf'"
    says err "did you mean 'tiny.gguf'"
    run 3 generate -m nowhere/at/all.gguf -p x
    says err "there is no directory 'nowhere/at'"
    mkdir models
    mv tiny.gguf models/tiny.gguf
    run 3 inspect models/qqqqqqqqqqqqqqqqqq
    says err "models holds 'tiny.gguf'"
    mkdir -p cache/sennit
    cp models/tiny.gguf cache/sennit/some.gguf
    run 2 generate -p x
    says err "cache/sennit/some.gguf"
    mv models/tiny.gguf tiny.gguf
    echo "this is not a model" >text.gguf
    run 3 generate -m text.gguf -p x
    run 3 inspect text.gguf
    head -c 5000 tiny.gguf >cut.gguf
    run 3 generate -m cut.gguf -p x
    run 3 generate -m . -p x
    run 3 generate -m tiny.gguf -f missing.txt
    says err "cannot open the prompt 'missing.txt'"
    run 3 generate -m tiny.gguf -f .
    run 3 generate -m tiny.gguf -p x --pre no-such-tag
    says err "no-such-tag"
    printf '{"prompt": "a"}\n{"promt": "b"}\n' >rows.jsonl
    run 3 generate -m tiny.gguf --prompts rows.jsonl
    says err "rows.jsonl:2"
    says err 'did you mean "prompt"'
    printf '{"prompt": 5}\n' >rows.jsonl
    run 3 generate -m tiny.gguf --prompts rows.jsonl
    printf '{"prompt": "a", "top_k": -1}\n' >rows.jsonl
    run 3 generate -m tiny.gguf --prompts rows.jsonl
    says err '"top_k" must be'
    printf '{"prompt": "a"\n' >rows.jsonl
    run 3 generate -m tiny.gguf --prompts rows.jsonl
    printf '\n\n' >rows.jsonl
    run 3 generate -m tiny.gguf --prompts rows.jsonl
    says err "holds no rows"
}

case_json() {
    tiny_model
    run 0 generate -m tiny.gguf -p "Hello there" -n 9 --ignore-eos --threads 2 --chunk 3 --json --logprobs 2
    silent err
    same "$(json rows#)" 1 "rows"
    same "$(json rows.0.ids#)" 9 "ids"
    same "$(json rows.0.logprobs#)" 9 "logprobs"
    same "$(json rows.0.logprobs.0.top#)" 2 "top"
    same "$(json rows.0.logprobs.0.top.0.id)" "$(json rows.0.ids.0)" "the greedy choice is the most likely token"
    same "$(json rows.0.finish_reason)" length "finish_reason"
    same "$(json rows.0.n_generated)" 9 "n_generated"
    same "$(json in_force.threads)" 2 "threads"
    same "$(json in_force.chunk)" 3 "chunk"
    local n spans
    n=$(json rows.0.n_prompt)
    spans=$(json rows.0.prefill_spans)
    same "$spans" $(((n + 2) / 3)) "prefill spans of $n tokens at chunk 3"
    same "$(json in_force.rows_per_step#)" "$(json in_force.steps)" "one entry for each step"
    [ "$(json in_force.kernels#)" -gt 3 ] || fail "few kernels"
    same "$(json in_force.kernels.0.calls#)" 2 "calls per thread"
    # The prompt's own tokens: those of teacher forcing.
    local digest second forced
    digest=$(json rows.0.digest)
    run 0 generate -m tiny.gguf -p "Hello there" -n 9 --ignore-eos --json --logprobs 2 --prompt-logprobs
    same "$(json rows.0.digest)" "$digest" "the answer's digest"
    same "$(json rows.0.prompt_logprobs#)" "$n" "prompt_logprobs"
    same "$(json rows.0.prompt_logprobs.1.top#)" 2 "the prompt's alternatives"
    second=$(json rows.0.prompt_logprobs.1.logprob)
    forced="{\"ids\": [$(json rows.0.prompt_logprobs.0.id)], \"forced\": [$(json rows.0.prompt_logprobs.1.id)], \"max_tokens\": 1}"
    run 0 generate -m tiny.gguf -p "Hello there" -n 0 --json --prompt-logprobs
    same "$(json rows.0.prompt_logprobs.1.logprob)" "$second" "without an answer"
    same "$(json rows.0.n_generated)" 0 "n_generated"
    echo "$forced" >forced.jsonl
    run 0 generate -m tiny.gguf --prompts forced.jsonl --json --logprobs 2
    same "$(json rows.0.logprobs.0.logprob)" "$second" "teacher forcing"
    json in_force.weight_bytes_per_step.decode in_force.weight_bytes_read model.step_weight_bytes >/dev/null
    grep -qE '"variant":"[a-z0-9-]+"' out || fail "no variants"
    run 0 generate -m tiny.gguf -p "Hello there" -n 4 --isa scalar --json
    ! grep -qE '"variant":"avx' out || fail "a vector kernel ran under --isa scalar"
    same "$(json in_force.isa)" scalar "isa"
}

case_exact() {
    tiny_model --type Q4_1 --embd-type Q8_0
    local a b isa n=0
    a=$(digest -p "One prompt for all of this" -n 20 --ignore-eos)
    for b in "--chunk 1" "--chunk 7 --threads 3" "--threads 1" "--threads 2 --chunk 2" "--step-tokens 2 --max-rows 2" "--no-pin"; do
        # shellcheck disable=SC2086
        same "$(digest -p "One prompt for all of this" -n 20 --ignore-eos $b)" "$a" "digest with $b"
    done
    for isa in scalar avx2 avx512; do
        "$sennit" generate -m tiny.gguf -p x -n 1 --isa $isa >/dev/null 2>err </dev/null
        case $? in
            0) same "$(digest -p "One prompt for all of this" -n 20 --ignore-eos --isa $isa)" "$a" "digest with $isa"
                n=$((n + 1)) ;;
            2) grep -qi "$isa" err || fail "a level that the CPU lacks is not named" ;;
            *) fail "--isa $isa"; cat err ;;
        esac
    done
    [ $n -ge 1 ] || fail "no instruction set worked"
    b=$(digest -p "One prompt for all of this" -n 20 --ignore-eos --rows 8 | sort -u)
    same "$b" "$a" "digest with 8 rows"
    # Eight rows that decode are one step, and a step reads the weights once.
    json in_force.rows_per_step | grep -q '8,8,8' || fail "rows did not share steps"
    same "$(json in_force.weight_bytes_per_step.decode)" "$(json model.step_weight_bytes)" "weight bytes of a step of 8 rows"
    # The digest sees the storage type of the cache, and the prompt.
    [ "$(digest -p "One prompt for all of this" -n 20 --ignore-eos --kv f32)" != "$a" ] || fail "--kv f32 changed nothing"
    [ "$(digest -p "One prompt for all of thiz" -n 20 --ignore-eos)" != "$a" ] || fail "another prompt, the same digest"
    run 0 generate -m tiny.gguf -p "One prompt for all of this" -n 20 --ignore-eos --digest
    says out "digest $(printf '%s' "$a" | grep -oE '[0-9a-f]{16}')"
}

# Coded keys and values: a computation of their own, which company, chunks, threads and instruction set do not change.
case_codes() {
    local kv a b isa all=
    tiny_model --head-dim 64
    for kv in affine8 affine4 turboquant-k8v8 turboquant-k8v4 turboquant-k8v3 turboquant-k8v2 f16; do
        a=$(digest -p "One prompt for all of this" -n 20 --ignore-eos --kv $kv)
        case $all in *"$a"*) fail "--kv $kv gives what another storage gave" ;; esac
        all="$all $a"
        same "$(digest -p "One prompt for all of this" -n 20 --ignore-eos --kv $kv --chunk 5 -t 2)" "$a" "$kv in chunks"
        b=$(digest -p "One prompt for all of this" -n 20 --ignore-eos --kv $kv --rows 4 | sort -u)
        same "$b" "$a" "$kv in 4 rows"
        for isa in scalar avx2; do
            "$sennit" generate -m tiny.gguf -p x -n 1 --isa $isa >/dev/null 2>&1 </dev/null || continue
            same "$(digest -p "One prompt for all of this" -n 20 --ignore-eos --kv $kv --isa $isa)" "$a" "$kv with $isa"
        done
    done
    run 0 generate -m tiny.gguf -p x -n 1 --kv affine8 --json
    same "$(json in_force.cache.family) $(json in_force.cache.type)" "affine affine k8 v8 g32" "what is in force"
    tiny_model
    run 2 generate -m tiny.gguf -p x -n 1 --kv affine8
    says err "does not divide"
    run 2 generate -m tiny.gguf -p x -n 1 --kv affine5
}

case_rows() {
    tiny_model
    cat >rows.jsonl <<'J'
{"prompt": "the first row", "max_tokens": 12, "ignore_eos": true}
{"prompt": "another one, which joins later", "max_tokens": 20, "ignore_eos": true, "join_at_step": 5}
{"ids": [70, 71, 72, 73], "max_tokens": 8, "ignore_eos": true, "join_at_step": 2, "temperature": 1.5, "seed": 9}

{"prompt": "this one is stopped", "max_tokens": 30, "ignore_eos": true, "cancel_at_token": 3}
{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "ignore_eos": true, "join_at_step": 40}
{"prompt": "forced", "forced": [65, 66, 67], "ignore_eos": true}
J
    run 0 generate -m tiny.gguf --prompts rows.jsonl --json
    cp out all.json
    same "$(json rows#)" 6 "rows"
    same "$(json rows.3.finish_reason)" cancelled "the cancelled row"
    same "$(json rows.4.n_generated)" 4 "the row that joins when all others have ended"
    same "$(json rows.5.ids)" "[65,66,67]" "forced ids"
    [ "$(json in_force.most_rows_in_step)" -ge 4 ] || fail "rows did not meet"
    json in_force.rows_per_step | grep -q '^\[3,3,4,' || fail "rows joined at other steps: $(json in_force.rows_per_step)"
    # Each row alone has the digest that it has in the batch.
    local i line=0
    while read -r text; do
        [ -n "$text" ] || continue
        if [ $line != 3 ]; then
            printf '%s\n' "$text" >one.jsonl
            cp all.json out
            local want got
            want=$(json rows.$line.digest)
            run 0 generate -m tiny.gguf --prompts one.jsonl --json --chunk 2
            got=$(json rows.0.digest)
            same "$got" "$want" "row $line alone and in the batch"
        fi
        line=$((line + 1))
    done <rows.jsonl
    # A forced answer is never longer than its ids, in whatever order the fields stand.
    printf '{"prompt": "x", "forced": [65, 66], "max_tokens": 100}\n{"prompt": "x", "max_tokens": 1, "forced": [65, 66]}\n' >forced.jsonl
    run 0 generate -m tiny.gguf --prompts forced.jsonl --json
    same "$(json rows.0.ids)" "[65,66]" "forced before max_tokens"
    same "$(json rows.1.ids)" "[65]" "max_tokens before forced"
    printf '{"prompt": "x"}\n\0{"prompt": "y"}\n' >nul.jsonl
    run 3 generate -m tiny.gguf --prompts nul.jsonl --json
    says err "NUL"
    # More rows than the batch holds wait for their turn.
    run 0 generate -m tiny.gguf -p "x y" --rows 9 --max-rows 2 -n 5 --ignore-eos --json
    same "$(json rows#)" 9 "rows"
    same "$(json in_force.most_rows_in_step)" 2 "--max-rows"
    same "$(json rows | grep -oE '"digest":"[0-9a-f]+"' | sort -u | wc -l)" 1 "digests"
    # One row is refused, the others answer.
    printf '{"prompt": "a", "max_tokens": 4}\n{"prompt": "a", "max_tokens": 900000}\n' >rows.jsonl
    run 4 generate -m tiny.gguf --prompts rows.jsonl --json
    same "$(json rows.1.finish_reason)" refused "the row that is too long"
    json rows.1.error.message rows.0.digest >/dev/null
}

case_sampling() {
    tiny_model
    local a b
    a=$(digest -p "sample" -n 24 --ignore-eos --temp 1.2 --seed 1; json rows.0.ids)
    b=$(digest -p "sample" -n 24 --ignore-eos --temp 1.2 --seed 1 --chunk 1 --threads 3; json rows.0.ids)
    same "$a" "$b" "one seed"
    b=$(digest -p "sample" -n 24 --ignore-eos --temp 1.2 --seed 2; json rows.0.ids)
    [ "$a" != "$b" ] || fail "another seed changed nothing"
    a=$(digest -p "sample" -n 24 --ignore-eos; json rows.0.ids)
    b=$(digest -p "sample" -n 24 --ignore-eos --temp 1.2 --top-k 1; json rows.0.ids)
    same "$a" "$b" "top-k 1 and greedy"
    run 0 generate -m tiny.gguf -p sample -n 5 --ignore-eos --logit-bias 70=1000 --json
    same "$(json rows.0.ids)" "[70,70,70,70,70]" "--logit-bias"
    run 0 generate -m tiny.gguf -p sample -n 5 --logit-bias 2=1000 --json
    same "$(json rows.0.finish_reason)" stop "an end token"
    run 0 generate -m tiny.gguf -p sample -n 5 --logit-bias 2=1000 --ignore-eos --json
    same "$(json rows.0.n_generated)" 5 "--ignore-eos"
    run 0 generate -m tiny.gguf -p sample -n 2 --top-k 5
    says err "no effect at temperature 0"
    run 0 generate -m tiny.gguf -p sample -n 0 --json
    same "$(json rows.0.n_generated rows.0.finish_reason | tr '\n' ' ')" "0 length " "-n 0"
}

case_text() {
    tiny_model
    # Standard output is the text; -f and -p say the same.
    printf 'once more' >prompt.txt
    run 0 generate -m tiny.gguf -f prompt.txt -n 30 --ignore-eos
    cp out file.txt
    run 0 generate -m tiny.gguf -p 'once more' -n 30 --ignore-eos
    cmp -s out file.txt || fail "-f and -p differ"
    silent err
    "$sennit" generate -m tiny.gguf -f - -n 30 --ignore-eos <prompt.txt >out 2>err
    cmp -s out file.txt || fail "-f - and -p differ"
    # Random models say random bytes; what comes out is valid UTF-8 all the same.
    for seed in 1 2 3; do
        run 0 generate -m tiny.gguf -p x -n 200 --ignore-eos --temp 3 --seed $seed
        iconv -f UTF-8 -t UTF-8 out >/dev/null 2>&1 || fail "invalid UTF-8 with seed $seed"
    done
    # Invalid bytes in the prompt are told of.
    printf 'a\xff\xfeb' >bad.txt
    run 0 generate -m tiny.gguf -f bad.txt -n 1
    says err "invalid UTF-8"
    run 0 generate -m tiny.gguf -p 'hi' --chat --system 'Be brief.' -n 3 --ignore-eos --json
    [ "$(json rows.0.n_prompt)" -gt 10 ] || fail "--chat did not apply the template"
    # The same chat through a file of prompts, as a prompt with --system and as messages.
    local alone
    alone=$(json rows.0.digest)
    printf '{"prompt": "hi"}\n{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]}\n' >chat.jsonl
    run 0 generate -m tiny.gguf --prompts chat.jsonl --chat --system 'Be brief.' -n 3 --ignore-eos --json
    same "$(json rows.0.digest)" "$alone" "--prompts with --chat and --system"
    same "$(json rows.1.digest)" "$alone" "the same as messages"
}

case_chat() {
    tiny_model --context 2048
    printf 'Hello you\nAnd then?\\\non two lines\n/nonsense\n/clear\nHello you\n/exit\nnever read\n' |
        "$sennit" chat -m tiny.gguf --json -n 12 --ignore-eos --system 'Be kind.' >talk 2>err || { fail "chat"; cat err; }
    same "$(wc -l <talk)" 3 "answers"
    says err "there is no command '/nonsense'"
    sed -n 1p talk >out
    local first
    first=$(json digest)
    same "$(json turn n_reused n_generated | tr '\n' ' ')" "1 0 12 " "the first turn"
    local n1 n2 reused spans tokens
    n1=$(json n_prompt)
    tokens=$(json in_force.tokens)
    sed -n 2p talk >out
    n2=$(json n_prompt)
    reused=$(json n_reused)
    [ "$n2" -gt "$n1" ] || fail "the second turn is not longer"
    # The second turn reads what is new: its message and the end of the answer, not the first turn's prompt.
    [ "$reused" -ge "$n1" ] || fail "the second turn reused $reused of $n1 tokens"
    same $(($(json in_force.tokens) - tokens)) $((n2 - reused + 11)) "tokens that the engine computed for the second turn"
    sed -n 3p talk >out
    same "$(json digest)" "$first" "the same words after /clear"
    # What a turn says does not depend on what was reused: the whole talk at once, from nothing.
    local second text
    second=$(sed -n 2p talk | "$get" digest)
    text=$(sed -n 1p talk | grep -oE '"text":"([^"\\]|\\.)*"' | head -n 1 | cut -d: -f2-)
    printf '{"messages": [%s, %s, {"role": "assistant", "content": %s}, %s], "max_tokens": 12, "ignore_eos": true}\n' \
        '{"role": "system", "content": "Be kind."}' '{"role": "user", "content": "Hello you"}' "$text" \
        '{"role": "user", "content": "And then?\non two lines"}' >talk.jsonl
    run 0 generate -m tiny.gguf --prompts talk.jsonl --json
    same "$(json rows.0.digest)" "$second" "the second turn from nothing"
    # Streaming without JSON: the text alone on standard output.
    printf 'Hello you\n' | "$sennit" chat -m tiny.gguf -n 12 --ignore-eos --system 'Be kind.' --verbose >out 2>err
    says err "reused"
    [ -s out ] || fail "no text"
    printf 'Hello\n' | "$sennit" chat -m tiny.gguf -n 5000 >out 2>err || fail "-n above the context"
}

wait_for() { # up to 30 seconds for a text in out
    for _ in $(seq 300); do
        grep -aqF -- "$1" out 2>/dev/null && return
        sleep 0.1
    done
}

# A terminal of its own: prompts, a Ctrl-C that stops the answer and not the program.
case_chat_terminal() {
    command -v script >/dev/null || { echo "SKIPPED: the program 'script' (bsdutils) is not installed"; exit 77; }
    script -qec true /dev/null >/dev/null 2>&1 ||
        { echo "SKIPPED: no pseudo-terminal can be made here (is /dev/pts mounted?)"; exit 77; }
    tiny_model --context 100000
    : >out
    {
        wait_for '/help lists'
        printf 'Hello\n'
        sleep 1
        printf '\003'
        wait_for '(stopped)'
        printf 'half a li\003'
        wait_for '/exit leaves)'
        printf '/stats\n'
        wait_for ' steps, '
        printf '/exit\n'
        sleep 0.5
    } | timeout 120 script -qec "$sennit chat -m tiny.gguf --isa scalar --threads 1 -n 90000 --ignore-eos" /dev/null >out 2>&1
    grep -aqF '(stopped)' out || { fail "Ctrl-C did not stop the answer"; tail -c 600 out; }
    grep -aqF '/exit leaves)' out || fail "Ctrl-C at the prompt said nothing"
    grep -aqF ' steps, ' out || { fail "the program did not go on after Ctrl-C"; tail -c 600 out; }
}

# True once the process has a handler for SIGINT.
catches_interrupt() {
    local mask
    mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
    [ -n "$mask" ] && [ $((0x$mask & 2)) != 0 ]
}

case_interrupt() {
    tiny_model --context 100000
    # A job in the background ignores SIGINT unless it has a handler, which is what is tested.
    "$sennit" generate -m tiny.gguf -p "go on and on" -n 90000 --ignore-eos --isa scalar --threads 1 --json >out 2>err &
    local pid=$! code
    for _ in $(seq 300); do
        catches_interrupt $pid && break
        sleep 0.1
    done
    sleep 1
    kill -INT $pid
    wait $pid
    code=$?
    same $code 130 "exit code after Ctrl-C"
    same "$(json rows.0.finish_reason)" cancelled "finish_reason after Ctrl-C"
    [ "$(json rows.0.ids#)" -gt 0 ] || fail "nothing was written before Ctrl-C"
}

case_tokenize() {
    tiny_model
    printf 'Hello <|im_start|>' | "$sennit" tokenize -m tiny.gguf --json >out 2>err || fail "tokenize"
    same "$("$get" <out; json ids | grep -c '\b1\b')" 0 "a control token in plain text"
    printf 'Hello <|im_start|>' | "$sennit" tokenize -m tiny.gguf --json --special >out 2>err || fail "tokenize --special"
    json ids | grep -qE ',1\]$' || fail "--special did not find the control token: $(json ids)"
    printf '' | "$sennit" tokenize -m tiny.gguf --json --no-bos >out 2>err || fail "tokenize of nothing"
    same "$(json ids)" "[]" "ids of nothing"
    printf 'a\xffb' | "$sennit" tokenize -m tiny.gguf --json >out 2>err || fail "tokenize of invalid bytes"
    says err "warning"
    printf 'ab' | "$sennit" tokenize -m tiny.gguf >out 2>err || fail "tokenize as a table"
    grep -q '"' out || fail "no table"
    printf 'a\0b' | "$sennit" tokenize -m tiny.gguf --json >out 2>err || fail "tokenize of a NUL byte"
    [ "$(json ids#)" -ge 3 ] || fail "the NUL byte ended the text"
    # A vocabulary without tensors is enough.
    local v
    for v in gpt-2 falcon deepseek-coder; do
        v=$shared/data/vocab/ggml-vocab-$v.gguf
        [ -e "$v" ] || { echo "note: there is no $v"; continue; }
        run_text 0 'Hello world' tokenize -m "$v" --json
        [ "$(json ids#)" -ge 2 ] || fail "$v: few ids"
    done
    # Kinds of tokenizer that this version does not know are refused by name.
    for v in llama-spm phi-3; do
        v=$shared/data/vocab/ggml-vocab-$v.gguf
        [ -e "$v" ] || continue
        run_text 3 'Hello world' tokenize -m "$v" --json
        [ -s err ] || fail "$v: refused without a word"
    done
}

case_render() {
    printf '{%% for m in messages %%}<{{ m.role }}>{{ m.content }}\n{%% endfor %%}{{ extra }}' >t.jinja
    printf '{"messages": [{"role": "user", "content": "h\\u00e9 \\"q\\""}], "extra": 3}' >m.json
    run 0 render --template t.jinja --messages m.json
    same "$(cat out)" "$(printf '<user>hé "q"\n3')" "the text"
    run 0 render --template t.jinja --messages m.json --json
    same "$(json text)" "$(printf '<user>hé "q"\n3')" "the text in JSON"
    "$sennit" render --template t.jinja --messages - <m.json >out 2>err || fail "messages from standard input"
    printf 'one\n  {%% frobnicate %%}' >bad.jinja
    run 3 render --template bad.jinja --messages m.json
    says err "2"
    printf '{"messages": ' >bad.json
    run 3 render --template t.jinja --messages bad.json
    run 3 render --template t.jinja --messages mm.json
    says err "did you mean 'm.json'"
    printf '{{ strftime_now("%%Y-%%m-%%d") }}' >now.jinja
    run 0 render --template now.jinja --messages m.json --now 2026-01-31T12:00:00
    same "$(cat out)" 2026-01-31 "--now"
}

case_bench() {
    tiny_model
    run 0 bench -m tiny.gguf --rows 1,3 --prompt 20 --gen 5 --repeat 2 --threads 2 --json
    same "$(json results# results.1.rows results.1.prompt results.1.gen results.1.threads | tr '\n' ' ')" "2 3 20 5 2 " "results"
    json results.0.prefill_tok_s results.0.decode_tok_s results.0.step_ms_median results.0.prefill_ms >/dev/null
    run 0 bench -m tiny.gguf --rows 2 --prompt 20 --gen 5 --chunk 3 --repeat 1
    says out "decode t/s"
    run 4 bench -m tiny.gguf --rows 1 --prompt 200000 --gen 5
    run 2 bench -m tiny.gguf --rows 8 --max-rows 2
}

case_inspect() {
    tiny_model --type Q4_0
    run 0 inspect tiny.gguf
    says out "general.architecture"
    says out "Q4_0"
    run 0 inspect tiny.gguf --json
    json >/dev/null
}

case_selftest() {
    tiny_model --type Q8_0
    run 0 selftest -m tiny.gguf --kernel rms_norm
    says out "all is well"
    says out "digest"
    run 2 selftest --kernels x
    # What is not there is not "all is well".
    run 2 selftest --kernel nonsense
    says err "no kernel is called 'nonsense'"
    says err "hint: "
    silent out
    run 2 selftest --kernel rms_nrom
    says err "did you mean 'rms_norm'?"
    run 2 selftest --isa neon
    if ! grep -qw avx512_vnni /proc/cpuinfo; then
        run 2 selftest --isa avx512 --kernel rms_norm
        says err "this CPU has no avx512"
    fi
    # --isa, --threads and --chunk narrow the model's settings too.
    run 0 selftest -m tiny.gguf --kernel rms_norm --isa scalar --threads 2 --chunk 3
    [ "$(grep -c 'digest .* ok' out)" -ge 3 ] || fail "few settings with --isa scalar"
    same "$(grep 'digest ' out | grep -cvE '^scalar +2 threads, chunk +3,')" 0 "other settings under --isa scalar"
}

"case_${case_//-/_}" || fail "the case ended with an error"
[ $fails = 0 ] || { echo "$fails failures"; exit 1; }
