# One place for every compiler flag. docs/numerics.md says why the floating-point ones are not negotiable:
# a contracted multiply-add or a reassociated sum is a different number.
add_library(sennit_flags INTERFACE)
target_compile_options(sennit_flags INTERFACE
  -ffp-contract=off
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Wmissing-prototypes
  $<$<BOOL:${SENNIT_WERROR}>:-Werror>)
target_compile_definitions(sennit_flags INTERFACE _GNU_SOURCE)
if(SENNIT_SANITIZE)
  target_compile_options(sennit_flags INTERFACE -fsanitize=${SENNIT_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(sennit_flags INTERFACE -fsanitize=${SENNIT_SANITIZE})
endif()
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1" CACHE STRING "" FORCE)
set(CMAKE_C_FLAGS_DEBUG "-O1 -g" CACHE STRING "" FORCE)

# Flags of each instruction-set folder. Nothing outside these folders may use the instructions.
set(SENNIT_FLAGS_FMA -mavx -mfma)
set(SENNIT_FLAGS_AVX2 -mavx2 -mfma -mf16c)
set(SENNIT_FLAGS_AVX512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
