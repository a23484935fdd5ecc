//go:build gpu

// The functions of NVIDIA's driver, each a jump to the one that libcuda.so.1 has. The library is looked for when the program
// runs, so a program can be built where there is no driver, and starts where there is none. Functions that the driver does
// not have answer CUDA_ERROR_NOT_FOUND, and all of them CUDA_ERROR_NOT_INITIALIZED where there is no driver.
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "library_linux.h"

enum { NotInitialized = 3, NotFound = 500 };  // of CUresult

static int notInitialized(void) { return NotInitialized; }
static int notFound(void) { return NotFound; }

// Hidden names do not take the place of libcuda's own for other libraries of the process.
#define HIDDEN __attribute__((visibility("hidden")))

// A jump leaves the arguments where they are, whatever they are.
#if defined(__x86_64__)
#define JUMP(name) "jmp *stheno_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "adrp x16, stheno_" #name "\nldr x16, [x16, :lo12:stheno_" #name "]\nbr x16\n"
#else
#error "CUDA runs on x86-64 and on ARM64"
#endif

#define FUNCTION(name)                                     \
  HIDDEN void* stheno_##name = (void*)notInitialized;      \
  __asm__(".text\n.globl " #name "\n.hidden " #name "\n"   \
          ".type " #name ", %function\n" #name ":\n" JUMP(name));
#include "library_functions.h"
#undef FUNCTION

static const struct {
  const char* name;
  void** at;
} functions[] = {
#define FUNCTION(name) {#name, &stheno_##name},
#include "library_functions.h"
#undef FUNCTION
};

static DriverState state = {NotInitialized, ""};

// cuInit is called once, when gorgonia.org/cu starts. It always succeeds, because that package ends the program otherwise;
// what became of the driver is told by driverState.
HIDDEN int cuInit(unsigned flags) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(state.problem, sizeof state.problem, "there is no NVIDIA driver: %s", dlerror());
    return 0;
  }
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void* found = dlsym(library, functions[i].name);
    *functions[i].at = found ? found : (void*)notFound;
  }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  state.result = init ? init(flags) : NotFound;
  return 0;
}

HIDDEN const DriverState* driverState(void) { return &state; }
