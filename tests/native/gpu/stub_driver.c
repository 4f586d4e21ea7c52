/* A driver's library without a driver, for tests: takes what the real bindings pass on, prints it, and does copies and
   one kernel (add: y[i] = x[i] + device) on the host's memory. Built as libcuda.so.1 where there is a C compiler. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAY(...) do { printf(__VA_ARGS__); putchar(10); fflush(stdout); } while (0)
#define CONTEXT ((Handle)0x77)

typedef unsigned long long Pointer;
typedef void *Handle;

static int lost; /* a fill at address 0 loses the GPU */
static long handles = 0x100;

static Handle new_handle(void) { return (Handle)(handles += 16); }

int cuInit(unsigned flags) { SAY("cuInit %u", flags); return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Stub GPU"); return 0; }
int cuDeviceTotalMem(size_t *nbytes, int device) { *nbytes = 1ull << 34; return 0; }
int cuDevicePrimaryCtxRetain(Handle *context, int device) { *context = CONTEXT; return 0; }
int cuCtxSetCurrent(Handle context) { return context == CONTEXT ? 0 : 201; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 75: *value = 9; return 0;          /* compute capability 9.0 */
    case 97: *value = 232448; return 0;     /* shared memory of a block */
    case 16: *value = 132; return 0;        /* multiprocessors */
    case 38: *value = 50 << 20; return 0;   /* last cache */
    default: *value = 0; return 0;
    }
}

int cuGetErrorName(int status, const char **name) {
    *name = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_STUB";
    return 0;
}
int cuGetErrorString(int status, const char **words) { *words = "stub string"; return 0; }

int cuMemAlloc(Pointer *address, size_t nbytes) {
    if (nbytes > 1ull << 30) return 2;
    *address = (Pointer)aligned_alloc(256, nbytes);
    return 0;
}
int cuMemFree(Pointer address) { free((void *)address); return 0; }
int cuMemGetInfo(size_t *left, size_t *total) { *left = 123; *total = 456; return 0; }
int cuMemHostAlloc(void **address, size_t nbytes, unsigned flags) {
    SAY("cuMemHostAlloc %zu %u", nbytes, flags);
    *address = aligned_alloc(4096, (nbytes + 4095) / 4096 * 4096);
    return 0;
}
int cuMemFreeHost(void *address) { free(address); return 0; }
int cuMemcpyAsync(Pointer to, Pointer source, size_t nbytes, Handle stream) {
    SAY("cuMemcpyAsync %zu stream %p", nbytes, stream);
    memcpy((void *)to, (void *)source, nbytes);
    return 0;
}
int cuMemsetD8Async(Pointer to, unsigned char byte, size_t nbytes, Handle stream) {
    SAY("cuMemsetD8Async %u %zu %p", byte, nbytes, stream);
    if (to) memset((void *)to, byte, nbytes);
    else lost = 1;
    return 0;
}

int cuStreamCreate(Handle *stream, unsigned flags) {
    *stream = new_handle();
    SAY("cuStreamCreate flags %u -> %p", flags, *stream);
    return 0;
}
int cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) {
    SAY("cuStreamWaitEvent %p %p %u", stream, event, flags);
    return 0;
}
int cuStreamQuery(Handle stream) { static int asked; return ++asked % 3 ? 600 : 0; }
int cuStreamSynchronize(Handle stream) { SAY("cuStreamSynchronize %p", stream); return lost ? 700 : 0; }

int cuEventCreate(Handle *event, unsigned flags) {
    *event = new_handle();
    SAY("cuEventCreate flags %u -> %p", flags, *event);
    return 0;
}
int cuEventDestroy(Handle event) { return 0; }
int cuEventRecord(Handle event, Handle stream) { SAY("cuEventRecord %p %p", event, stream); return 0; }
int cuEventQuery(Handle event) { SAY("cuEventQuery %p", event); return 0; }
int cuEventElapsedTime(float *milliseconds, Handle first, Handle last) { *milliseconds = 1.5f; return 0; }

int cuModuleLoadDataEx(Handle *module, const void *image, unsigned count, int *options, void **values) {
    unsigned size = (unsigned)(uintptr_t)values[1];
    SAY("cuModuleLoadDataEx image %.4s n %u options %d %d size %u", (const char *)image, count, options[0], options[1],
        size);
    if (!strncmp(image, "bad", 3)) {
        strcpy(values[0], "stub log: line 7");
        return 218;
    }
    *module = (Handle)0x4d0;
    return 0;
}
int cuModuleUnload(Handle module) { return 0; }
int cuModuleGetFunction(Handle *function, Handle module, const char *name) {
    SAY("cuModuleGetFunction %p %s", module, name);
    *function = (Handle)0xF00;
    return strcmp(name, "add") ? 500 : 0;
}
int cuFuncSetAttribute(Handle function, int attribute, int value) {
    SAY("cuFuncSetAttribute %p %d %d", function, attribute, value);
    return 0;
}

int cuLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Handle stream, void **arguments, void **extra) {
    Pointer x = *(Pointer *)arguments[0], y = *(Pointer *)arguments[1];
    int device = *(int *)arguments[2];
    SAY("cuLaunchKernel %p grid %u %u %u block %u %u %u shared %u stream %p 0x%llx 0x%llx device %d extra %p", function,
        gx, gy, gz, bx, by, bz, shared, stream, x, y, device, (void *)extra);
    for (unsigned i = 0; i < bx; i++) ((float *)y)[i] = ((float *)x)[i] + device;
    return 0;
}
int cuLaunchHostFunc(Handle stream, void (*function)(void *), void *data) {
    SAY("cuLaunchHostFunc %p", stream);
    function(data);
    return 0;
}

int cuStreamBeginCapture(Handle stream, int mode) { SAY("cuStreamBeginCapture %p %d", stream, mode); return 0; }
int cuStreamEndCapture(Handle stream, Handle *graph) {
    SAY("cuStreamEndCapture %p", stream);
    *graph = (Handle)0x6A;
    return 0;
}
int cuGraphInstantiateWithFlags(Handle *executable, Handle graph, unsigned long long flags) {
    SAY("cuGraphInstantiate %p %llu", graph, flags);
    *executable = (Handle)0x6E;
    return 0;
}
int cuGraphDestroy(Handle graph) { SAY("cuGraphDestroy %p", graph); return 0; }
int cuGraphExecDestroy(Handle executable) { return 0; }
int cuGraphLaunch(Handle executable, Handle stream) { SAY("cuGraphLaunch %p %p", executable, stream); return 0; }

/* How the bindings find all others. */
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    Dl_info here;
    dladdr((void *)cuInit, &here);
    *function = dlsym(dlopen(here.dli_fname, RTLD_NOW), name);
    if (status) *status = *function ? 0 : 1;
    return *function ? 0 : 500;
}
int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags, int *status) {
    return cuGetProcAddress_v2(name, function, version, flags, status);
}
