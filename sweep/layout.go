// Package sweep knows where leases, locks, reclaim tokens and temp files can lie below a root, what a person
// calls them, and what a sweep of a root removes and why: tokens that no longer block anybody and, on request, temps
// that nobody uses. It never removes a lease or a lock.
//
// Only Sweeper.Run and Sweeper.Maintain change anything; all else only looks: nothing is written, no lock is taken, and
// below a root no symbolic link is followed. A folder that is missing is normal; one that cannot be read is one
// PlaceError and the rest goes on. What it cannot promise: the tree may change while it is walked, so what is found is
// what each directory held at the moment of its listing.
package sweep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kind is what a root is: AgentMux and AFT may be set together, the others stand alone.
type Kind uint8

// The kinds.
const (
	AgentMux Kind = 1 << iota
	AFT
	Plain   // any other directory
	File    // one lock, lease, token or temp
	Missing // nothing there
)

func (k Kind) String() string {
	var names []string
	for i, name := range [...]string{"agentmux", "aft", "plain", "file", "missing"} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// Has reports whether k includes all of kinds.
func (k Kind) Has(kinds Kind) bool { return k&kinds == kinds && kinds != 0 }

// ErrTooMany is the error of a place that was not looked at because the walk had read as many entries as it may.
var ErrTooMany = errors.New("too many entries")

// PlaceError is a directory or file that could not be looked at; its neighbours were looked at all the same.
type PlaceError struct {
	Path string
	Err  error
}

func (e *PlaceError) Error() string {
	// The path is named once, though the error inside may name it too.
	if pe, ok := errors.AsType[*fs.PathError](e.Err); ok && pe.Path == e.Path {
		return pe.Error()
	}
	if s := e.Err.Error(); strings.Contains(s, e.Path) {
		return s
	}
	return e.Path + ": " + e.Err.Error()
}

func (e *PlaceError) Unwrap() error { return e.Err }

// Layout is a root with what it was recognised as. It is immutable and describes the moment of Recognise: a root may
// become something else later.
type Layout struct {
	Root string // absolute; links in it are not resolved
	Kind Kind
	// LeaseDirs are the directories that hold leases, absolute and each once; empty but for AgentMux, and for File
	// where the file is one of a lease's.
	LeaseDirs []string
	// LeaseID is the id of the one lease that a File root names; empty for all else.
	LeaseID string

	limit int // of entries; 0: maxEntries
}

// The suffixes and names of SPEC's layouts.
const (
	leaseSuffix = ".lease.json"
	epochSuffix = ".epoch"
	lockSuffix  = ".lock"
	leaseLock   = ".lease"
	reclaim     = ".reclaim"
	rootLock    = "trusted-filter-projects.json.lock"
)

// domains are the folders of an AFT storage in which locks lie, at most two levels deep.
var domains = [...]string{"index", "callgraph", "inspect", "semantic", "symbols", "checkpoints", ".aft"}

// leaseFolders are the places of leases below a root.
var leaseFolders = [...][]string{
	{"leases"},
	{"agents", "registry", "leases"},
	{"shared", "agents", "registry", "leases"},
}

// Recognise tells what root is. A relative root is taken from the working directory. A missing root is no error but a
// Kind; the error, a *PlaceError, means that the system would not say what is there, and the Kind is Missing then.
// A directory that exists and cannot be listed is recognised as far as possible; Find reports it.
func Recognise(root string) (Layout, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return Layout{Root: root, Kind: Missing}, &PlaceError{Path: root, Err: err}
	}
	l := Layout{Root: abs}
	info, err := os.Stat(abs)
	switch {
	case err == nil && info.IsDir():
		l.recogniseDir()
		return l, nil
	case err == nil:
		l.recogniseFile()
		return l, nil
	}
	// A link that leads nowhere is the lock that it stands in the place of, if it has such a name.
	if link, lerr := os.Lstat(abs); lerr == nil && link.Mode()&fs.ModeSymlink != 0 && IsEntry(filepath.Base(abs)) {
		l.recogniseFile()
		return l, nil
	}
	l.Kind = Missing
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	return l, &PlaceError{Path: abs, Err: err}
}

func (l *Layout) recogniseDir() {
	for _, folder := range leaseFolders {
		if dir, ok := below(l.Root, folder...); ok {
			l.LeaseDirs = append(l.LeaseDirs, dir)
		}
	}
	if holds(l.Root, isLeaseOrCounter) {
		l.LeaseDirs = append(l.LeaseDirs, l.Root)
	}
	slices.Sort(l.LeaseDirs)
	if len(l.LeaseDirs) > 0 {
		l.Kind |= AgentMux
	}
	for _, domain := range domains {
		if _, ok := below(l.Root, domain); ok {
			l.Kind |= AFT
			break
		}
	}
	if l.Kind == 0 {
		l.Kind = Plain
	}
}

// recogniseFile tells a lease's files from all others.
func (l *Layout) recogniseFile() {
	l.Kind = File
	if id, ok := LeaseOf(l.Root); ok {
		l.LeaseID, l.LeaseDirs = id, []string{filepath.Dir(l.Root)}
	}
}

// LeaseOf returns the id of the lease that a file of that path is, or would be, a part of: its record, its counter, or
// its flock file, which is what <id>.lock is in a directory of leases. The file need not be there. One of another make
// belongs to none.
func LeaseOf(path string) (id string, ok bool) {
	dir, name := filepath.Split(path)
	for _, suffix := range [...]string{leaseSuffix, epochSuffix} {
		if id, ok := strings.CutSuffix(name, suffix); ok && id != "" {
			return id, true
		}
	}
	id, ok = strings.CutSuffix(name, lockSuffix)
	if !ok || id == "" || id[0] == '.' || !isLeaseDir(filepath.Clean(dir)) {
		return "", false
	}
	return id, true
}

// LeasePath is the path of the record of a lease.
func LeasePath(dir, id string) string { return filepath.Join(dir, id+leaseSuffix) }

// isLeaseDir reports whether dir is one of leases: by its name, or by a lease or a counter in it.
func isLeaseDir(dir string) bool {
	return filepath.Base(dir) == leaseFolders[0][0] || holds(dir, isLeaseOrCounter)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// below returns the directory dir/names..., unless one of them is no directory itself: a link is not followed.
func below(dir string, names ...string) (string, bool) {
	for _, name := range names {
		dir = filepath.Join(dir, name)
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return "", false
		}
	}
	return dir, true
}

// holds reports whether a file of such a name lies in dir itself. It reads no further than the first.
func holds(dir string, such func(name string) bool) bool {
	f, err := openDir(dir, true)
	if err != nil {
		return false
	}
	defer f.Close()
	for seen := 0; seen < maxEntries; {
		names, err := f.Readdirnames(chunk)
		if slices.ContainsFunc(names, such) {
			return true
		}
		seen += len(names)
		if err != nil || len(names) == 0 {
			break
		}
	}
	return false
}

func isLeaseOrCounter(name string) bool {
	return isLease(name) || len(name) > len(epochSuffix) && strings.HasSuffix(name, epochSuffix)
}

func isLease(name string) bool {
	return len(name) > len(leaseSuffix) && strings.HasSuffix(name, leaseSuffix)
}

// isLockName reports whether a file of that name can be a lock.
func isLockName(name string) bool {
	return strings.HasSuffix(name, lockSuffix) || strings.HasSuffix(name, leaseLock)
}

// tokenOf returns the name of the lock that a file of that name is a reclaim token of.
func tokenOf(name string) (lock string, ok bool) {
	lock, ok = strings.CutSuffix(name, reclaim)
	if !ok || len(lock) < 2 || lock[0] != '.' || !isLockName(lock[1:]) {
		return "", false
	}
	return lock[1:], true
}

// tempOf returns the name of the lock that a file of that name is a temp of; a lease's temp names none.
func tempOf(name string) (lock string, ok bool) {
	if strings.HasPrefix(name, ".registry-tmp-") {
		return "", true
	}
	i := strings.LastIndex(name, ".tmp.")
	if i < 2 || name[0] != '.' {
		return "", false
	}
	lock = name[1:i]
	if of, token := tokenOf(lock); token {
		lock = of // a token is made by a temp, too
	}
	if !isLockName(lock) {
		return "", false
	}
	return lock, true
}

// IsEntry reports whether a file of that name can be a lease, a lock, a token or a temp, or belong to one.
func IsEntry(name string) bool {
	_, token := tokenOf(name)
	_, temp := tempOf(name)
	return token || temp || isLockName(name) || isLease(name) || strings.HasSuffix(name, epochSuffix)
}

// LockOf returns the path of the lock that a token or temp belongs to; "" if path is neither, or a lease's temp.
func LockOf(path string) string {
	dir, name := filepath.Split(path)
	lock, ok := tokenOf(name)
	if !ok {
		lock, _ = tempOf(name)
	}
	if lock == "" {
		return ""
	}
	return dir + lock
}

// isHarness reports whether AFT keeps backups of one of its clients in a folder of that name.
func isHarness(name string) bool {
	switch name {
	case "opencode", "pi", "runner":
		return true
	}
	return strings.HasPrefix(name, "mcp--") || strings.HasPrefix(name, "fed--")
}
