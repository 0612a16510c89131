package shim

import "syscall"

// A ring keeps the last bytes that were put into it. Its memory is mapped and
// not of the Go heap: the garbage collector lets garbage pile up to the size
// of what is alive, so a ring there would cost twice its size.
type ring struct {
	buf []byte
	in  int64 // bytes put into it so far
}

// newRing maps size bytes, which cost memory once they are written. Without
// the memory the ring keeps nothing.
func newRing(size int64) *ring {
	if size <= 0 {
		return &ring{}
	}
	buf, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return &ring{}
	}
	return &ring{buf: buf}
}

func (r *ring) put(b []byte) {
	size := int64(len(r.buf))
	if over := int64(len(b)) - size; over > 0 {
		r.in += over
		b = b[over:]
	}
	for len(b) > 0 {
		n := copy(r.buf[r.in%size:], b)
		r.in += int64(n)
		b = b[n:]
	}
}

// kept returns what the ring holds, the older part first.
func (r *ring) kept() (older, newer []byte) {
	size := int64(len(r.buf))
	if size == 0 {
		return nil, nil
	}
	if r.in <= size {
		return r.buf[:r.in], nil
	}
	at := r.in % size
	return r.buf[at:], r.buf[:at]
}

func (r *ring) free() {
	if r.buf != nil {
		_ = syscall.Munmap(r.buf)
		r.buf = nil
	}
}
