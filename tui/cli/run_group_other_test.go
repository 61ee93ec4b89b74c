//go:build unix && !linux

package cli_test

import "testing"

// askNobody does nothing: only where the dead can be told from the living it matters who asks for them.
func askNobody(t *testing.T) { t.Helper() }
