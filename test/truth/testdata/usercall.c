// SPDX-License-Identifier: Apache-2.0

// Known calls for the tests of usercall. It needs no library, and so runs on
// every machine of the matrix. Made for both architectures by
//
//	for a in x86_64:amd64 aarch64:arm64; do clang-22 -target ${a%:*}-linux-gnu -O1 -nostdlib -static \
//		-fno-stack-protector -fuse-ld=lld -Wl,--build-id=none -o usercall.${a#*:} usercall.c; done

#define FUNCTION __attribute__((noinline, used))

static long system_call(long number, const void *a)
{
#ifdef __x86_64__
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(0) : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = (long)a;
	register long x1 __asm__("x1") = 0;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
	return x0;
#endif
}

#ifdef __x86_64__
enum { NANOSLEEP = 35, EXIT_GROUP = 231 };
#else
enum { NANOSLEEP = 101, EXIT_GROUP = 94 };
#endif

volatile long sink;

FUNCTION void quick(void)
{
	sink++;
}

/* 20 ms */
FUNCTION void nap(void)
{
	const long time[2] = { 0, 20000000 };

	system_call(NANOSLEEP, time);
}

FUNCTION void nest(long depth)
{
	if (depth > 1)
		nest(depth - 1);
	sink++; /* not the last thing it does, or it were a jump */
}

/*
 * leap(0) returns as all functions do. over() calls leap(1), which returns
 * from over, as longjmp would: there is no return from that call of leap.
 */
void leap(long);
void over(void);
#ifdef __x86_64__
__asm__(".type leap, @function\n leap: test %rdi, %rdi\n jnz 1f\n ret\n 1: add $8, %rsp\n ret\n .size leap, .-leap\n"
	".type over, @function\n over: mov $1, %edi\n call leap\n ud2\n .size over, .-over\n");
#else
__asm__(".type leap, @function\n leap: cbnz x0, 1f\n ret\n 1: ldp x29, x30, [sp], #16\n ret\n .size leap, .-leap\n"
	".type over, @function\n over: stp x29, x30, [sp, #-16]!\n mov x0, #1\n bl leap\n brk #0\n .size over, .-over\n");
#endif

/* Begins with a push on x86-64, as functions with frame pointers do. */
void framed(void);
#ifdef __x86_64__
__asm__(".type framed, @function\n framed: push %rbp\n pop %rbp\n ret\n .size framed, .-framed\n");
#else
__asm__(".type framed, @function\n framed: stp x29, x30, [sp, #-16]!\n ldp x29, x30, [sp], #16\n ret\n .size framed, .-framed\n");
#endif

/* With one argument: 100,000 calls of quick; with two, of framed. */
void run(long arguments)
{
	if (arguments > 1) {
		for (int i = 0; i < 100000; i++)
			arguments > 2 ? framed() : quick();
		system_call(EXIT_GROUP, 0);
	}
	for (int i = 0; i < 1009; i++)
		quick();
	for (int i = 0; i < 7; i++)
		nap();
	for (int i = 0; i < 3; i++)
		nest(50);
	nest(100);
	for (int i = 0; i < 11; i++)
		over();
	for (int i = 0; i < 5; i++)
		leap(0);
	system_call(EXIT_GROUP, 0);
}

/* At the stack pointer the kernel puts the number of arguments. */
#ifdef __x86_64__
__asm__(".globl _start; _start: mov (%rsp), %rdi; call run");
#else
__asm__(".globl _start; _start: ldr x0, [sp]; bl run");
#endif
