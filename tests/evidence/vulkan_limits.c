/* Gives a Vulkan device the limit of a GPU where its own is lower: tensors of up to 4 GiB in one binding.
 *
 * Mesa's software driver binds 128 MiB, so that llama.cpp would leave every larger tensor to the CPU. Measurements
 * allocate and compute nothing, so that the device need not keep what this promises.
 *
 *     cc -shared -fPIC -o limits.so tests/evidence/vulkan_limits.c -ldl
 *     LD_PRELOAD=$PWD/limits.so GGML_VK_FORCE_MAX_BUFFER_SIZE=1099511627776 \
 *         GGML_VK_FORCE_MAX_ALLOCATION_SIZE=1099511627776 GGML_VK_VISIBLE_DEVICES=0,0,0 \
 *         python -m tests.evidence measure --backend vulkan --engine …/llama-server
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <vulkan/vulkan.h>

static PFN_vkGetPhysicalDeviceProperties plain;
static PFN_vkGetPhysicalDeviceProperties2 chained;

static void VKAPI_CALL widened(VkPhysicalDevice device, VkPhysicalDeviceProperties *found) {
    plain(device, found);
    found->limits.maxStorageBufferRange = UINT32_MAX;
}

static void VKAPI_CALL widened_chain(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *found) {
    chained(device, found);
    found->properties.limits.maxStorageBufferRange = UINT32_MAX;
}

PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    static PFN_vkGetInstanceProcAddr next;
    if (!next) next = (PFN_vkGetInstanceProcAddr)dlsym(RTLD_NEXT, "vkGetInstanceProcAddr");
    PFN_vkVoidFunction found = next(instance, name);
    if (!found) return found;
    if (!strcmp(name, "vkGetPhysicalDeviceProperties")) {
        plain = (PFN_vkGetPhysicalDeviceProperties)found;
        return (PFN_vkVoidFunction)widened;
    }
    if (!strcmp(name, "vkGetPhysicalDeviceProperties2") || !strcmp(name, "vkGetPhysicalDeviceProperties2KHR")) {
        chained = (PFN_vkGetPhysicalDeviceProperties2)found;
        return (PFN_vkVoidFunction)widened_chain;
    }
    return found;
}
