/* A Vulkan driver whose devices run out of memory: Mesa's software driver behind an account.
 *
 * The software driver says that its heap has 2 GiB and then gives what the host has. This library stands before it as
 * the driver that the Vulkan loader opens. It presents a discrete GPU: heap 0 is the device's own memory, bounded by
 * the account, heap 1 is the host's. All else is the software driver's.
 *
 * The account of `gpu0.so` is the file `gpu0.heap` beside it, shared by all processes that use the device. Each process
 * has a row, locked as long as it lives; the kernel drops the lock with the process, as a driver drops its memory.
 *
 * Only what is called here is declared, with the layout that the Vulkan specification fixes for 64-bit systems.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void (*function)(void);
typedef struct { uint32_t type; const void *next; uint64_t size; uint32_t memory_type; } allocate_info;
typedef struct { uint64_t size, alignment; uint32_t type_bits; } requirements;
typedef struct { uint32_t type; void *next; requirements found; } requirements2;
typedef struct {
    uint32_t n_types;
    struct { uint32_t flags, heap; } types[32];
    uint32_t n_heaps;
    struct { uint64_t size; uint32_t flags; } heaps[16];
} memory_properties;
typedef struct { uint32_t type; void *next; memory_properties found; } memory_properties2;
typedef struct { uint32_t type; void *next; uint64_t budget[16], usage[16]; } memory_budget;
typedef struct { char name[256]; uint32_t version; } extension;

enum { INCOMPLETE = 5, OUT_OF_HOST_MEMORY = -1, OUT_OF_DEVICE_MEMORY = -2, DEVICE_LOST = -4 };
enum { DEVICE_LOCAL = 1, VISIBLE = 2 | 4 | 8, MEMORY_BUDGET = 1000237000, ROWS = 64 };

#define MEMORY_BUDGET_NAME "VK_EXT_memory_budget"

/* tests/support/bounded_gpu.py writes and reads this */
typedef struct {
    uint64_t limit;         /* bytes of the device */
    uint64_t ambush_at;     /* as soon as so many bytes are held … */
    uint64_t ambush_bytes;  /* … somebody else holds so many more; 0: nobody does */
    int32_t tells;          /* whether the driver tells what is free */
    int32_t submit_result;  /* what a submission of work answers; 0: it is done */
    int32_t stuck;          /* whether an allocation never returns */
    int32_t refused;        /* how many allocations were refused */
    uint64_t held[ROWS];    /* bytes by process; a row counts while it is locked */
} account;

static account *shared;
static int file = -1, mine = -1;
static void *driver;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t handle, size; } given[4096];

static int lock_byte(int command, short kind, off_t at) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int result = fcntl(file, command, &lock);
    return command == F_GETLK ? lock.l_type != F_UNLCK : result == 0;
}

static off_t row(int index) { return (off_t)offsetof(account, held) + 8 * index; }

static void take_row(void) {
    lock_byte(F_SETLKW, F_WRLCK, 0);
    for (int index = 0; mine < 0 && index < ROWS; index++) {
        if (lock_byte(F_SETLK, F_WRLCK, row(index))) {
            mine = index;
            shared->held[index] = 0;
        }
    }
    lock_byte(F_SETLK, F_UNLCK, 0);
}

__attribute__((constructor)) static void begin(void) {
    Dl_info self;
    char path[4096];
    if (!dladdr((void *)begin, &self) || strlen(self.dli_fname) > sizeof path - 8) abort();
    strcpy(path, self.dli_fname);
    strcpy(strrchr(path, '.'), ".heap");
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) abort();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (shared == MAP_FAILED || !driver) abort();
}

/* Bytes that other living processes hold; the account is locked. */
static uint64_t others(void) {
    uint64_t sum = 0;
    for (int index = 0; index < ROWS; index++)
        if (index != mine && shared->held[index] && lock_byte(F_GETLK, F_WRLCK, row(index))) sum += shared->held[index];
    if (shared->ambush_bytes && sum + (mine < 0 ? 0 : shared->held[mine]) >= shared->ambush_at) sum += shared->ambush_bytes;
    return sum;
}

/* Return whether so many more bytes are left, and count them as held. */
static int held_now(uint64_t size) {
    pthread_mutex_lock(&guard);
    if (mine < 0) take_row();
    lock_byte(F_SETLKW, F_WRLCK, 0);
    int fits = others() + shared->held[mine] + size <= shared->limit;
    if (fits) shared->held[mine] += size;
    else shared->refused++;
    lock_byte(F_SETLK, F_UNLCK, 0);
    pthread_mutex_unlock(&guard);
    return fits;
}

static void given_back(uint64_t size) {
    pthread_mutex_lock(&guard);
    shared->held[mine] -= size;
    pthread_mutex_unlock(&guard);
}

/* ── what stands before the software driver's own functions ─────────────────────────────────────────────────────── */

static struct {
    int32_t (*allocate)(void *, const allocate_info *, const void *, uint64_t *);
    void (*release)(void *, uint64_t, const void *);
    void (*needs)(void *, uint64_t, requirements *);
    void (*needs2)(void *, const void *, requirements2 *);
    void (*memory)(void *, memory_properties *);
    void (*memory2)(void *, memory_properties2 *);
    int32_t (*submit)(void *, uint32_t, const void *, uint64_t);
    int32_t (*wait_idle)(void *);
    int32_t (*extensions)(void *, const char *, uint32_t *, extension *);
    function (*of_device)(void *, const char *);
} its;

static int32_t allocate(void *device, const allocate_info *wanted, const void *allocator, uint64_t *memory) {
    allocate_info passed = *wanted;
    int on_device = passed.memory_type == 0;
    passed.memory_type = 0;
    while (shared->stuck) pause();
    if (on_device && !held_now(passed.size)) return OUT_OF_DEVICE_MEMORY;
    int32_t result = its.allocate(device, &passed, allocator, memory);
    if (on_device && result != 0) given_back(passed.size);
    if (!on_device || result != 0) return result;
    pthread_mutex_lock(&guard);
    size_t free_one = 0;
    while (given[free_one].size) free_one++;
    given[free_one].handle = *memory;
    given[free_one].size = passed.size;
    pthread_mutex_unlock(&guard);
    return 0;
}

/* Memory that is given back stays until the work that uses it is done, as a kernel's driver has it. Mesa's software
 * driver takes it from under its own threads, and crashes: llama.cpp grows its buffers without waiting for the work. */
static void release(void *device, uint64_t memory, const void *allocator) {
    uint64_t size = 0;
    if (its.wait_idle) its.wait_idle(device);
    its.release(device, memory, allocator);
    pthread_mutex_lock(&guard);
    for (size_t index = 0; index < sizeof given / sizeof *given && memory; index++) {
        if (given[index].handle != memory || !given[index].size) continue;
        size = given[index].size;
        given[index].size = 0;
        break;
    }
    pthread_mutex_unlock(&guard);
    if (size) given_back(size);
}

static void needs(void *device, uint64_t buffer, requirements *found) {
    its.needs(device, buffer, found);
    found->type_bits = 3;
}

static void needs2(void *device, const void *info, requirements2 *found) {
    its.needs2(device, info, found);
    found->found.type_bits = 3;
}

static void present(memory_properties *found) {
    uint64_t of_host = found->heaps[0].size;
    found->n_types = found->n_heaps = 2;
    found->types[0].flags = DEVICE_LOCAL, found->types[0].heap = 0;
    found->types[1].flags = VISIBLE, found->types[1].heap = 1;
    found->heaps[0].size = shared->limit, found->heaps[0].flags = DEVICE_LOCAL;
    found->heaps[1].size = of_host, found->heaps[1].flags = 0;
}

static void memory(void *physical, memory_properties *found) {
    its.memory(physical, found);
    present(found);
}

static void memory2(void *physical, memory_properties2 *found) {
    its.memory2(physical, found);
    present(&found->found);
    for (memory_budget *one = found->next; one; one = one->next) {
        if (one->type != MEMORY_BUDGET) continue;
        memset(one->budget, 0, sizeof one->budget + sizeof one->usage);
        uint64_t used = others();
        one->budget[0] = used < shared->limit ? shared->limit - used : 0;
        one->usage[0] = mine < 0 ? 0 : shared->held[mine];
        one->budget[1] = found->found.heaps[1].size;
    }
}

static int32_t submit(void *queue, uint32_t count, const void *what, uint64_t fence) {
    static int lost; /* for good, as a device is for the process that lost it */
    if (shared->submit_result == DEVICE_LOST) lost = 1;
    if (lost) return DEVICE_LOST;
    return shared->submit_result ? shared->submit_result : its.submit(queue, count, what, fence);
}

/* The software driver's list without its own VK_EXT_memory_budget (Mesa 25 has it), and with ours where it shall tell. */
static int32_t extensions(void *physical, const char *layer, uint32_t *count, extension *found) {
    static const extension budget = {MEMORY_BUDGET_NAME, 1};
    uint32_t room = *count, all = 0, kept = 0;
    if (layer) return its.extensions(physical, layer, count, found);
    int32_t result = its.extensions(physical, NULL, &all, NULL);
    extension *theirs = calloc(all + 1, sizeof *theirs);
    if (!theirs) return OUT_OF_HOST_MEMORY;
    if (result >= 0) result = its.extensions(physical, NULL, &all, theirs);
    for (uint32_t index = 0; index < all; index++)
        if (strcmp(theirs[index].name, MEMORY_BUDGET_NAME) != 0) theirs[kept++] = theirs[index];
    if (shared->tells) theirs[kept++] = budget;
    *count = found && room < kept ? room : kept;
    if (found) memcpy(found, theirs, *count * sizeof *found);
    free(theirs);
    return result < 0 ? result : *count < kept ? INCOMPLETE : 0;
}

static function of_device(void *device, const char *name);

static function before(const char *name, function theirs) {
    static const struct { const char *name; function ours; function *theirs; } table[] = {
        {"vkAllocateMemory", (function)allocate, (function *)&its.allocate},
        {"vkFreeMemory", (function)release, (function *)&its.release},
        {"vkGetBufferMemoryRequirements", (function)needs, (function *)&its.needs},
        {"vkGetBufferMemoryRequirements2", (function)needs2, (function *)&its.needs2},
        {"vkGetBufferMemoryRequirements2KHR", (function)needs2, (function *)&its.needs2},
        {"vkGetPhysicalDeviceMemoryProperties", (function)memory, (function *)&its.memory},
        {"vkGetPhysicalDeviceMemoryProperties2", (function)memory2, (function *)&its.memory2},
        {"vkGetPhysicalDeviceMemoryProperties2KHR", (function)memory2, (function *)&its.memory2},
        {"vkQueueSubmit", (function)submit, (function *)&its.submit},
        {"vkEnumerateDeviceExtensionProperties", (function)extensions, (function *)&its.extensions},
        {"vkGetDeviceProcAddr", (function)of_device, (function *)&its.of_device},
    };
    for (size_t index = 0; theirs && index < sizeof table / sizeof *table; index++) {
        if (strcmp(name, table[index].name) != 0) continue;
        *table[index].theirs = theirs;
        return table[index].ours;
    }
    return theirs;
}

static function of_device(void *device, const char *name) {
    if (!its.wait_idle) its.wait_idle = (int32_t (*)(void *))its.of_device(device, "vkDeviceWaitIdle");
    return before(name, its.of_device(device, name));
}

/* ── what the Vulkan loader calls ───────────────────────────────────────────────────────────────────────────────── */

function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
    function (*theirs)(void *, const char *) = (function (*)(void *, const char *))dlsym(driver, "vk_icdGetInstanceProcAddr");
    return before(name, theirs(instance, name));
}

function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name) {
    function (*theirs)(void *, const char *) =
        (function (*)(void *, const char *))dlsym(driver, "vk_icdGetPhysicalDeviceProcAddr");
    return theirs ? before(name, theirs(instance, name)) : NULL;
}

int32_t vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    int32_t (*theirs)(uint32_t *) = (int32_t (*)(uint32_t *))dlsym(driver, "vk_icdNegotiateLoaderICDInterfaceVersion");
    return theirs(version);
}
