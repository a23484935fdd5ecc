// Finite numbers where the mask hides others, with a user's score or mask: attention_user.cuh and
// attention_confine.cuh.
#include "attention_user_backward_sm80.cuh"

#include "attention_confine.cuh"

static_assert(sizeof(UserArguments) == ARGUMENT_BYTES, "attention_score.go has other arguments");

CONFINE_KERNELS(UserArguments)
