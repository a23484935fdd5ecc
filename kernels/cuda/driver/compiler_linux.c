//go:build gpu

// NVIDIA's run-time compiler, opened when it is first needed.
#define _GNU_SOURCE
#include "compiler_linux.h"

#include <dlfcn.h>
#include <stdlib.h>

const char* openCompiler(const char* path, Compiler* c) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
  int (*version)(int*, int*) = (int (*)(int*, int*))dlsym(library, "nvrtcVersion");
  const struct {
    const char* name;
    void** at;
  } functions[] = {
      {"nvrtcCreateProgram", (void**)&c->create}, {"nvrtcCompileProgram", (void**)&c->compile},
      {"nvrtcDestroyProgram", (void**)&c->destroy}, {"nvrtcGetCUBINSize", (void**)&c->imageSize},
      {"nvrtcGetCUBIN", (void**)&c->image}, {"nvrtcGetProgramLogSize", (void**)&c->logSize},
      {"nvrtcGetProgramLog", (void**)&c->log}, {"nvrtcGetErrorString", (void**)&c->describe},
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!(*functions[i].at = dlsym(library, functions[i].name))) return dlerror();
  if (!version || version(&c->major, &c->minor)) return "it does not tell its version";
  Dl_info info;
  if (!dladdr((void*)version, &info)) return "it does not tell where it is";
  c->path = info.dli_fname;
  return 0;
}

int compileProgram(const Compiler* c, const char* source, int headers, const char* const* texts, const char* const* names,
                   int options, const char* const* list, char** image, size_t* bytes, char** log) {
  void* program = 0;
  *image = *log = 0;
  int result = c->create(&program, source, "attention.cu", headers, texts, names);
  if (result) return result;
  result = c->compile(program, options, list);
  size_t length = 0;
  if (result && !c->logSize(program, &length) && (*log = malloc(length + 1))) {
    (*log)[0] = (*log)[length] = 0;
    c->log(program, *log);
  }
  if (!result) result = c->imageSize(program, bytes);
  if (!result && (*image = malloc(*bytes ? *bytes : 1))) result = c->image(program, *image);
  c->destroy(&program);
  return result;
}

const char* describeResult(const Compiler* c, int result) { return c->describe(result); }
