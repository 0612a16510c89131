package git

import (
	"bytes"
	"io"
)

// records calls each for every record of a stream that ends with a byte, zero by default.
type records struct {
	end  byte
	each func([]byte)
	left []byte
}

func (r *records) Write(b []byte) (int, error) {
	n := len(b)
	for {
		record, rest, whole := bytes.Cut(b, []byte{r.end})
		r.left = append(r.left, record...)
		if !whole {
			return n, nil
		}
		r.each(r.left)
		r.left, b = r.left[:0], rest
	}
}

// counter counts what goes through.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.n += int64(n)
	return n, err
}
