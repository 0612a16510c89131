package commands

import (
	"fmt"
	"strings"
	"time"
)

// Lasting writes a duration as people would, and as flags take it: "30d", "8d",
// "1m" and not "720h0m0s".
func Lasting(d time.Duration) string {
	if d != 0 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
