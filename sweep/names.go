package sweep

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/fslock/record"
)

// How long a decoded name is believed, and how soon an undecoded one is looked for again: names hardly ever change,
// and reading them anew for each look would double its cost.
const (
	keepName   = time.Minute
	retryName  = 10 * time.Second
	maxNames   = 1 << 18 // remembered at most
	maxNameLen = 4096    // bytes; a longer one is no path and no name
)

// Name is what a person knows an entry by. Both are text from disk, not made safe for a terminal.
type Name struct {
	Short string // "web-app", "researcher"; empty: unknown
	Path  string // of the checkout or the file that a hashed key stands for; empty: unknown
}

// Names decodes the hashed keys of an AFT storage and the ids of AgentMux's agents by the files that lie beside
// them. Those are hints: one that is missing, damaged, over 64 KiB or no regular file is no name and no error. What
// was decoded is believed for a minute. The zero value with a Layout is ready; its methods may be called at the
// same time.
type Names struct {
	Layout Layout // Required. Not changed after first use.

	mu    sync.Mutex
	known map[string]known // by the file that was read, and by the directory of those that share a name
	keys  map[string]Name  // by key, from cache-keys.json
	keyed time.Time        // until when keys are believed
}

type known struct {
	name  Name
	until time.Time
}

// Of returns what a person knows the lease, lock, token or temp at path by.
func (n *Names) Of(path string) Name {
	dir, file := filepath.Split(path)
	dir = filepath.Clean(dir)
	if slices.Contains(n.Layout.LeaseDirs, dir) {
		if id, ok := strings.CutSuffix(file, leaseSuffix); ok && id != "" {
			return n.file(filepath.Join(filepath.Dir(dir), id+".json"), agentName).name
		}
	}
	if !n.Layout.Kind.Has(AFT) {
		return Name{}
	}
	if old, ok := n.recall(dir); ok {
		return old.name
	}
	rel, ok := strings.CutPrefix(dir, strings.TrimSuffix(n.Layout.Root, string(filepath.Separator))+string(filepath.Separator))
	if !ok {
		return Name{}
	}
	folders := strings.Split(rel, string(filepath.Separator))
	if len(folders) == 4 && isHarness(folders[0]) && folders[3] == ".locks" {
		return n.backup(filepath.Dir(dir), path)
	}
	all := known{until: time.Now().Add(keepName)}
	for _, key := range slices.Backward(folders[1:]) {
		one := n.key(key)
		if all.name = one.name; one.until.Before(all.until) {
			all.until = one.until
		}
		if all.name != (Name{}) {
			break
		}
	}
	n.keep(dir, all)
	return all.name
}

// backup names a lock of a session's backups by the file that it guards, or else by the session.
func (n *Names) backup(session, path string) Name {
	lock := path
	if l := LockOf(path); l != "" {
		lock = l
	}
	base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(lock), lockSuffix), leaseLock)
	if base != "" && base[0] != '.' {
		if name := n.file(filepath.Join(session, base, "meta.json"), pathName).name; name != (Name{}) {
			return name
		}
	}
	return n.file(filepath.Join(session, "session.json"), pathName).name
}

// key names the checkout that a hashed key stands for.
func (n *Names) key(key string) known {
	owner := n.file(filepath.Join(n.Layout.Root, "artifact-owners", key, "owner.json"), pathName)
	if owner.name != (Name{}) {
		return owner
	}
	n.mu.Lock()
	keys, keyed := n.keys, n.keyed
	n.mu.Unlock()
	fresh := time.Now().Before(keyed)
	if !fresh {
		// Nothing is locked while the disk is read: two that come at once read it twice, and both are right.
		keys = readKeys(filepath.Join(n.Layout.Root, "cache-keys.json"))
		keyed = time.Now().Add(retryName)
		n.mu.Lock()
		n.keys, n.keyed = keys, keyed
		n.mu.Unlock()
	}
	if owner.until.Before(keyed) {
		keyed = owner.until
	}
	return known{keys[key], keyed}
}

// file returns the name that a file holds, remembered or read.
func (n *Names) file(path string, decode func([]byte) Name) known {
	if old, ok := n.recall(path); ok {
		return old
	}
	var name Name
	if f, err := record.Read(path); err == nil {
		name = decode(f.Data)
	}
	keep := keepName
	if name == (Name{}) {
		keep = retryName
	}
	one := known{name, time.Now().Add(keep)}
	n.keep(path, one)
	return one
}

// recall returns what is still believed of a file or directory.
func (n *Names) recall(path string) (old known, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, ok = n.known[path]
	return old, ok && time.Now().Before(old.until)
}

func (n *Names) keep(path string, one known) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || len(n.known) >= maxNames {
		n.known = make(map[string]known)
	}
	n.known[path] = one
}

// agentName decodes agents/registry/<id>.json.
func agentName(data []byte) Name {
	var agent struct {
		Data struct {
			Name text `json:"instance_name"`
		} `json:"data"`
	}
	// What was decoded before an error counts all the same.
	_ = json.Unmarshal(data, &agent)
	return Name{Short: string(agent.Data.Name)}
}

// pathName decodes an object that tells a path, as owner.json and meta.json do, or at least a name.
func pathName(data []byte) Name {
	var o struct {
		Checkout text `json:"checkout_path"`
		Path     text `json:"path"`
		Root     text `json:"root"`
		Name     text `json:"name"`
	}
	_ = json.Unmarshal(data, &o)
	for _, path := range [...]text{o.Checkout, o.Path, o.Root} {
		if path != "" {
			return Name{Short: base(string(path)), Path: string(path)}
		}
	}
	return Name{Short: string(o.Name)}
}

// readKeys decodes cache-keys.json: an object from a checkout's path to its key, or the other way round.
func readKeys(path string) map[string]Name {
	f, err := record.Read(path)
	if err != nil {
		return nil
	}
	var entries map[string]json.RawMessage
	if json.Unmarshal(f.Data, &entries) != nil {
		return nil
	}
	keys := make(map[string]Name, len(entries))
	put := func(key, path string) {
		// Several checkouts may share a key; which one is told must not change from look to look.
		if old, ok := keys[key]; key != "" && path != "" && (!ok || path < old.Path) {
			keys[key] = Name{Short: base(path), Path: path}
		}
	}
	for name, value := range entries {
		var o struct {
			Key text `json:"key"`
		}
		var s text
		_ = json.Unmarshal(value, &o)
		_ = json.Unmarshal(value, &s)
		switch {
		case o.Key != "":
			put(string(o.Key), name)
		case strings.ContainsAny(string(s), `/\`):
			put(name, string(s))
		case s != "":
			put(string(s), name)
		default:
			put(name, pathName(value).Path)
		}
	}
	return keys
}

// base is the last element of a path, or nothing where that says nothing.
func base(path string) string {
	if b := filepath.Base(path); b != "." && b != ".." && b != string(filepath.Separator) {
		return b
	}
	return ""
}

// text is a string of a file that is no contract: of any other type, or too long, it counts as absent.
type text string

// UnmarshalJSON implements json.Unmarshaler. It returns no error: its neighbours are worth reading all the same.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil && len(s) <= maxNameLen {
		*t = text(s)
	}
	return nil
}
