// Package ttyguard keeps the import of Bubble Tea from asking the terminal for its colours.
//
// Bubble Tea v1 does that in its init, and waits five seconds for the answer of a terminal that gives none,
// before main begins and whatever the verb. It does not ask where CI is set; so this package sets CI when it
// is initialised, and Restore takes that back.
//
// Of the packages whose imports are initialised, the linker takes the one whose path sorts first; this one is
// ready right after os, its only import, and sorts before os/signal, which Bubble Tea imports and waits for. So
// it comes first as long as it imports nothing else and the module's path sorts before "os/signal"; the test
// on a terminal that never answers fails when that ends.
package ttyguard

import "os"

const name = "CI"

//nolint:gochecknoglobals // what stood there before any code of ours could have kept it
var value, wasSet = shield()

func shield() (value string, wasSet bool) {
	value, wasSet = os.LookupEnv(name)
	_ = os.Setenv(name, "1") // fails for bad names only; at worst the terminal is asked
	return value, wasSet
}

// Restore puts the variable CI back as it was, so that neither this program nor a child believes that it runs
// under CI. Call it first thing in main. More calls do nothing but that.
//
// Bubble Tea's default renderer keeps what it found out under the guard: the background counts as dark, and is
// never asked for again. The colour profile is still found out at its first use, after Restore.
func Restore() {
	if wasSet {
		_ = os.Setenv(name, value)
	} else {
		_ = os.Unsetenv(name)
	}
}
