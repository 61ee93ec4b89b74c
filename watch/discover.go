package watch

import (
	"path/filepath"
	"strings"
)

// Discover returns the roots that the two originals would use, AgentMux's shared directory before AFT's storage.
// An empty variable counts as unset. Both are returned even when they are missing on disk, so that it can be told
// where was looked; one that only a home directory would lead to is left out when home is empty. Nothing is read
// but env.
func Discover(env func(string) string, home string) []Root {
	var roots []Root
	for _, rules := range [...][]rule{agentMuxRules, storageRules()} {
		for _, r := range rules {
			dir, chosenBy := home, byDefault
			if r.variable != "" {
				dir, chosenBy = env(r.variable), "$"+r.variable
			}
			if dir == "" {
				continue
			}
			roots = append(roots, Root{Path: filepath.Join(dir, filepath.FromSlash(r.below)), ChosenBy: chosenBy})
			break
		}
	}
	return roots
}

// byDefault is what chooses a root that no variable names.
const byDefault = "default"

// Discovered reports whether the root is one of Discover's: a command finds it without being told.
func Discovered(r Root) bool { return r.ChosenBy == byDefault || strings.HasPrefix(r.ChosenBy, "$") }

// rule is one way to a root: a folder below what a variable names, or below the home directory.
type rule struct {
	variable string // empty: the home directory
	below    string
}

// agentMuxRules are the ways to AgentMux's shared directory. The first match wins.
var agentMuxRules = []rule{
	{"AGENTMUX_HOME_OVERRIDE", "shared"},
	{"AGENTMUX_SHARED_DIR", ""},
	{"AGENTMUX_DATA_HOME", "shared"},
	{"", ".agentmux/shared"},
}

// storageRules are the ways to AFT's storage. The first match wins.
func storageRules() []rule {
	return append([]rule{
		{"AFT_STORAGE_DIR", ""},
		{"AFT_CACHE_DIR", "aft"},
		{"XDG_DATA_HOME", "cortexkit/aft"},
	}, ownStorageRules[:]...)
}
