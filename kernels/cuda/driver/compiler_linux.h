#include <stddef.h>

// Compiler is NVRTC: the functions that are used of it.
typedef struct {
  int (*create)(void** program, const char* source, const char* name, int headers, const char* const* texts, const char* const* names);
  int (*compile)(void* program, int options, const char* const* list);
  int (*destroy)(void** program);
  int (*imageSize)(void* program, size_t* bytes);
  int (*image)(void* program, char* to);
  int (*logSize)(void* program, size_t* bytes);
  int (*log)(void* program, char* to);
  const char* (*describe)(int result);
  int major, minor;
  const char* path; // of the library's file
} Compiler;

// openCompiler opens a library and returns 0, or why not, which holds until the next call.
const char* openCompiler(const char* path, Compiler* c);

// compileProgram makes a cubin, which the caller frees, or a log of why not; returns NVRTC's result.
int compileProgram(const Compiler* c, const char* source, int headers, const char* const* texts, const char* const* names,
                   int options, const char* const* list, char** image, size_t* bytes, char** log);

const char* describeResult(const Compiler* c, int result);
