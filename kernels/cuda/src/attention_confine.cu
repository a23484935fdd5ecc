// Finite numbers where the mask hides others, of scores with our options: attention_confine.cuh.
#include "attention_confine.cuh"

CONFINE_KERNELS(AttentionArguments)
