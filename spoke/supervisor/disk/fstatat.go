//go:build arm64 || riscv64 || loong64

package disk

import "syscall"

const sysFstatat = syscall.SYS_FSTATAT
