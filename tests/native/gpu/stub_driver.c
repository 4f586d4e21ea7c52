/* A driver's library without a driver, for tests: takes what the real bindings pass on, prints it, and does copies and
   one kernel (add: y[i] = x[i] + device) on the host's memory. Built as libcuda.so.1 where there is a C compiler. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
static int lost; /* a fill at address 0 loses the GPU */
typedef int R; typedef unsigned long long P; typedef void* H;
#define L(...) do { printf(__VA_ARGS__); putchar(10); fflush(stdout); } while (0)
R cuInit(unsigned f){L("cuInit %u",f);return 0;}
R cuDriverGetVersion(int*v){*v=13000;return 0;}
R cuDeviceGetCount(int*c){*c=1;return 0;}
R cuDeviceGet(int*d,int o){*d=o;return 0;}
R cuDeviceGetName(char*n,int len,int d){snprintf(n,len,"Stub GPU");return 0;}
R cuDeviceGetAttribute(int*v,int a,int d){*v= a==75?9: a==76?0: a==97?232448: a==16?132: a==38?(50<<20):0;return 0;}
R cuDeviceTotalMem(size_t*b,int d){*b=1ull<<34;return 0;}
R cuDevicePrimaryCtxRetain(H*c,int d){*c=(H)0x77;return 0;}
R cuCtxSetCurrent(H c){if(c!=(H)0x77)L("BAD CTX %p",c);return 0;}
R cuStreamCreate(H*s,unsigned f){static long n=0x100;*s=(H)(n+=16);L("cuStreamCreate flags %u -> %p",f,*s);return 0;}
R cuEventCreate(H*e,unsigned f){static long n=0x9000;*e=(H)(n+=16);L("cuEventCreate flags %u -> %p",f,*e);return 0;}
R cuEventDestroy(H e){L("cuEventDestroy %p",e);return 0;}
R cuEventRecord(H e,H s){L("cuEventRecord %p %p",e,s);return 0;}
R cuEventQuery(H e){L("cuEventQuery %p",e);return 0;}
R cuEventElapsedTime(float*ms,H a,H b){*ms=1.5f;return 0;}
R cuStreamWaitEvent(H s,H e,unsigned f){L("cuStreamWaitEvent %p %p %u",s,e,f);return 0;}
R cuStreamQuery(H s){static int n=0;return (n++%3)==2?0:600;}
R cuStreamSynchronize(H s){L("cuStreamSynchronize %p",s);return lost?700:0;}
R cuMemAlloc(P*p,size_t n){if(n>(1ull<<30))return 2;*p=(P)aligned_alloc(256,n);return 0;}
R cuMemFree(P p){free((void*)p);return 0;}
R cuMemHostAlloc(void**p,size_t n,unsigned f){*p=aligned_alloc(4096,(n+4095)/4096*4096);L("cuMemHostAlloc %zu %u",n,f);return 0;}
R cuMemFreeHost(void*p){free(p);return 0;}
R cuMemGetInfo(size_t*f,size_t*t){*f=123;*t=456;return 0;}
R cuMemcpyAsync(P d,P s,size_t n,H st){memcpy((void*)d,(void*)s,n);L("cuMemcpyAsync %zu stream %p",n,st);return 0;}
R cuMemsetD8Async(P d,unsigned char b,size_t n,H st){if(!d){lost=1;return 0;} memset((void*)d,b,n);L("cuMemsetD8Async %u %zu %p",b,n,st);return 0;}
R cuModuleLoadDataEx(H*m,const void*img,unsigned n,int*o,void**v){
  L("cuModuleLoadDataEx image %.4s n %u options %d %d size %u", (const char*)img,n,o[0],o[1],(unsigned)(uintptr_t)v[1]);
  if(!strncmp(img,"bad",3)){strcpy(v[0],"stub log: line 7");return 218;} *m=(H)0x4d0;return 0;}
R cuModuleUnload(H m){L("cuModuleUnload %p",m);return 0;}
R cuModuleGetFunction(H*f,H m,const char*n){L("cuModuleGetFunction %p %s",m,n);if(strcmp(n,"add"))return 500;*f=(H)0xF00;return 0;}
R cuFuncSetAttribute(H f,int a,int v){L("cuFuncSetAttribute %p %d %d",f,a,v);return 0;}
R cuLaunchKernel(H f,unsigned gx,unsigned gy,unsigned gz,unsigned bx,unsigned by,unsigned bz,unsigned sh,H s,void**p,void**extra){
  L("cuLaunchKernel %p grid %u %u %u block %u %u %u shared %u stream %p 0x%llx 0x%llx device %d extra %p",f,gx,gy,gz,bx,by,bz,sh,s,*(P*)p[0],*(P*)p[1],*(int*)p[2],extra);
  float*x=(float*)*(P*)p[0],*y=(float*)*(P*)p[1];int d=*(int*)p[2];for(unsigned i=0;i<bx;i++)y[i]=x[i]+d;return 0;}
R cuLaunchHostFunc(H s,void(*fn)(void*),void*u){L("cuLaunchHostFunc %p %p",s,u);fn(u);return 0;}
R cuStreamBeginCapture(H s,int m){L("cuStreamBeginCapture %p %d",s,m);return 0;}
R cuStreamEndCapture(H s,H*g){*g=(H)0x6A;L("cuStreamEndCapture %p",s);return 0;}
R cuGraphInstantiateWithFlags(H*e,H g,unsigned long long f){*e=(H)0x6E;L("cuGraphInstantiate %p %llu",g,f);return 0;}
R cuGraphDestroy(H g){L("cuGraphDestroy %p",g);return 0;}
R cuGraphExecDestroy(H g){L("cuGraphExecDestroy %p",g);return 0;}
R cuGraphLaunch(H g,H s){L("cuGraphLaunch %p %p",g,s);return 0;}
R cuGetErrorName(int e,const char**s){*s= e==700?"CUDA_ERROR_ILLEGAL_ADDRESS":"CUDA_ERROR_STUB";return 0;}
R cuGetErrorString(int e,const char**s){*s="stub string";return 0;}
R cuGetProcAddress_v2(const char*n,void**f,int v,unsigned long long fl,int*st){*f=dlsym(RTLD_DEFAULT,n); if(!*f){Dl_info i;void*self=0;dladdr((void*)cuInit,&i);self=dlopen(i.dli_fname,RTLD_NOW);*f=dlsym(self,n);} if(st)*st=*f?0:1; return *f?0:500;}
R cuGetProcAddress(const char*n,void**f,int v,unsigned long long fl,int*st){return cuGetProcAddress_v2(n,f,v,fl,st);}
