//go:build amd64 || ppc64 || ppc64le || s390x

package disk

import "syscall"

const sysFstatat = syscall.SYS_NEWFSTATAT
