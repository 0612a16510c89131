package commands

import (
	"fmt"
	"io"
	"log/slog"
)

// A Secret is a value that shows itself nowhere: not printed, not logged, not encoded. The
// pointer keeps it from those, too, who print fields that they may not ask for their methods.
type Secret struct{ value *string }

// NewSecret returns value as a secret.
func NewSecret(value string) Secret { return Secret{&value} }

// Reveal returns the value. Whoever calls it answers for where that goes.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

const redacted = "[redacted]"

// String does not say the value.
func (Secret) String() string { return redacted }

// GoString does not say the value.
func (Secret) GoString() string { return redacted }

// Format does not say the value, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText does not say the value.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON does not say the value.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue does not say the value.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// UnmarshalText reads a value.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}
