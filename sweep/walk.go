package sweep

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"holdfast/fslock/record"
)

const (
	maxEntries = 1 << 20 // directory entries that one walk reads
	chunk      = 1024    // directory entries that are read between two looks at the context
	maxWorkers = 4
	depth      = 2    // levels below a plain root, or below a domain's folder, that are walked
	maxParents = 1024 // directories that are told only because one may be made in them: each costs a watcher
)

// Found is what lies below a root. All paths are absolute, sorted, each once.
type Found struct {
	// Locks are the files that are locks by their place and name, and the names of locks that are missing while
	// their token or temp is there. Leases are not among them.
	Locks  []string
	Tokens []string
	Temps  []string
	// Leases are the records of the leases of which the record, the counter or the flock file is there, in the
	// directories that hold leases: of a root that is a file, none.
	Leases []string
	// Dirs are what a watcher has to watch: every directory that was listed, and those in which a session's folder of
	// locks, or a harness's backups, would be made (at most 1024).
	Dirs   []string
	Errors []PlaceError
}

// Find lists what lies below the root. A finished context, a directory that cannot be read and too many entries
// (ErrTooMany, over a million) are told in Errors, and the rest is found all the same.
func (l Layout) Find(ctx context.Context) Found {
	w := &walker{}
	w.left.Store(int64(cmp.Or(l.limit, maxEntries)))
	switch {
	case l.Kind.Has(Missing):
	case l.Kind.Has(File):
		l.findFile(&w.found)
	default:
		w.walk(ctx, l.places())
	}
	return w.result()
}

// findFile finds the one entry that the root names, and the token beside a lock.
func (l Layout) findFile(found *Found) {
	dir, name := filepath.Split(l.Root)
	found.Dirs = []string{filepath.Clean(dir)}
	if l.LeaseID != "" {
		return
	}
	lock := l.Root
	if x, ok := tokenOf(name); ok {
		found.Tokens = []string{l.Root}
		lock = dir + x
	} else if x, ok := tempOf(name); ok {
		found.Temps = []string{l.Root}
		if x == "" {
			return
		}
		lock = dir + x
	}
	found.Locks = []string{lock}
	if token := dir + record.TokenName(filepath.Base(lock)); exists(token) && len(found.Tokens) == 0 {
		found.Tokens = []string{token}
	}
}

// rule says what counts in a directory.
type rule uint8

const (
	lockRule    rule = iota // every name of a lock counts
	plainRule               // a lock must look like one
	leaseRule               // <id>.lock is a lease's flock file
	storageRule             // the root of an AFT storage: one lock, the domains and the harnesses
	backupsRule             // a harness's backups: only each session's .locks counts
	watchRule               // nothing counts; it is opened so that it is watched
)

// place is a directory that is to be listed.
type place struct {
	dir    string
	rule   rule
	depth  int  // levels below it that are listed too
	follow bool // it may be a symbolic link: only the root
}

// places are the directories at which a walk starts.
func (l Layout) places() []place {
	var places []place
	for _, dir := range l.LeaseDirs {
		places = append(places, place{dir: dir, rule: leaseRule, follow: dir == l.Root})
	}
	switch {
	case l.Kind.Has(AFT):
		places = append(places, place{dir: l.Root, rule: storageRule, follow: true})
	case l.Kind.Has(Plain):
		places = append(places, place{dir: l.Root, rule: plainRule, depth: depth, follow: true})
	default:
		places = append(places, place{dir: l.Root, rule: watchRule, follow: true})
	}
	return places
}

// walker is one walk. Its goroutines share it.
type walker struct {
	left    atomic.Int64 // entries that may still be read
	parents atomic.Int64 // as maxParents
	mu      sync.Mutex
	found   Found
}

// walk lists the places and what they lead to, one level after the other with a few workers.
func (w *walker) walk(ctx context.Context, level []place) {
	for len(level) > 0 && ctx.Err() == nil {
		var (
			next  []place
			index atomic.Int64
			wg    sync.WaitGroup
		)
		for range min(maxWorkers, runtime.GOMAXPROCS(0), len(level)) {
			wg.Go(func() {
				var own Found
				var more []place
				for ctx.Err() == nil {
					i := int(index.Add(1)) - 1
					if i >= len(level) {
						break
					}
					more = append(more, w.visit(ctx, level[i], &own)...)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.found.add(&own)
				next = append(next, more...)
			})
		}
		wg.Wait()
		level = next
	}
	if err := ctx.Err(); err != nil && len(level) > 0 {
		w.found.Errors = append(w.found.Errors, PlaceError{Path: level[0].dir, Err: err})
	}
}

func (f *Found) add(other *Found) {
	f.Locks = append(f.Locks, other.Locks...)
	f.Tokens = append(f.Tokens, other.Tokens...)
	f.Temps = append(f.Temps, other.Temps...)
	f.Leases = append(f.Leases, other.Leases...)
	f.Dirs = append(f.Dirs, other.Dirs...)
	f.Errors = append(f.Errors, other.Errors...)
}

// result makes the order that of the names, whatever worker was first.
func (w *walker) result() Found {
	f := w.found
	for _, paths := range [...]*[]string{&f.Locks, &f.Tokens, &f.Temps, &f.Leases, &f.Dirs} {
		slices.Sort(*paths)
		*paths = slices.Compact(*paths)
	}
	slices.SortStableFunc(f.Errors, func(a, b PlaceError) int { return cmp.Compare(a.Path, b.Path) })
	f.Errors = slices.CompactFunc(f.Errors, func(a, b PlaceError) bool {
		return a.Path == b.Path && a.Err.Error() == b.Err.Error()
	})
	return f
}

// visit lists one directory into found and returns the directories that it leads to.
func (w *walker) visit(ctx context.Context, p place, found *Found) []place {
	entries, err := w.list(ctx, p)
	switch {
	case err == nil:
	case isMissing(p, err):
		if w.parents.Add(1) <= maxParents {
			found.Dirs = append(found.Dirs, filepath.Dir(p.dir))
		}
		return nil
	default:
		found.Errors = append(found.Errors, PlaceError{Path: p.dir, Err: err})
		if len(entries) == 0 {
			return nil
		}
	}
	found.Dirs = append(found.Dirs, p.dir)
	switch p.rule {
	case storageRule:
		return storage(p, entries, found)
	case backupsRule:
		var more []place
		for _, e := range entries {
			if e.IsDir() {
				more = append(more, place{dir: filepath.Join(p.dir, e.Name(), ".locks"), rule: lockRule})
			}
		}
		return more
	case watchRule:
		return nil
	default:
		return sift(p, entries, found)
	}
}

// list reads a directory. What was read before an error is returned with it. The root of a walk that only watches
// it is not read.
func (w *walker) list(ctx context.Context, p place) ([]fs.DirEntry, error) {
	f, err := openDir(p.dir, p.follow)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []fs.DirEntry
	if p.rule == watchRule {
		return all, nil
	}
	read := f.ReadDir
	if p.depth == 0 && p.rule != storageRule && p.rule != backupsRule {
		read = func(n int) ([]fs.DirEntry, error) { return namesOnly(f, n) }
	}
	for {
		if err := ctx.Err(); err != nil {
			return all, err
		}
		entries, err := read(chunk)
		left := w.left.Add(-int64(len(entries)))
		// A directory that ends here was read whole, however far others have gone over the limit meanwhile.
		if left < 0 && len(entries) > 0 {
			return append(all, entries[:max(0, len(entries)+int(left))]...), ErrTooMany
		}
		all = append(all, entries...)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// name is an entry of a directory below which nothing is walked: of what kind it is nobody asks.
type name string

func (n name) Name() string             { return string(n) }
func (name) IsDir() bool                { return false }
func (name) Type() fs.FileMode          { return fs.ModeIrregular }
func (name) Info() (fs.FileInfo, error) { return nil, fs.ErrInvalid }

// namesOnly is ReadDir at half its price.
func namesOnly(f *os.File, n int) ([]fs.DirEntry, error) {
	names, err := f.Readdirnames(n)
	entries := make([]fs.DirEntry, len(names))
	for i, s := range names {
		entries[i] = name(s)
	}
	return entries, err
}

// isMissing reports whether a directory is not there: it never was, it went since its parent was listed, or a link
// is in its place, which is not followed.
func isMissing(p place, err error) bool {
	if p.follow {
		return false
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	info, lerr := os.Lstat(p.dir)
	return lerr == nil && info.Mode()&fs.ModeSymlink != 0
}

// storage picks from the root of an AFT storage. Of its folders only the domains and the harnesses' backups are
// walked: the rest can be huge.
func storage(p place, entries []fs.DirEntry, found *Found) []place {
	var more []place
	for _, e := range entries {
		name := e.Name()
		switch {
		case !e.IsDir():
			token, _ := tokenOf(name)
			temp, _ := tempOf(name)
			path := filepath.Join(p.dir, name)
			switch rootLock {
			case name:
			case token:
				found.Tokens = append(found.Tokens, path)
			case temp:
				found.Temps = append(found.Temps, path)
			default:
				continue
			}
			found.Locks = append(found.Locks, filepath.Join(p.dir, rootLock))
		case slices.Contains(domains[:], name):
			more = append(more, place{dir: filepath.Join(p.dir, name), rule: lockRule, depth: depth})
		case isHarness(name):
			more = append(more, place{dir: filepath.Join(p.dir, name, "backups"), rule: backupsRule})
		}
	}
	return more
}

// sift tells locks, tokens and temps from all else in a directory, and returns its sub-directories where they count.
func sift(p place, entries []fs.DirEntry, found *Found) []place {
	var more []place
	var locks, withToken, withTemp []string // names of locks, of the locks of tokens and temps
	ids := make(map[string]bool)            // of leases
	prefix := strings.TrimSuffix(p.dir, string(filepath.Separator)) + string(filepath.Separator)
	join := func(name string) string { return prefix + name } // both are clean: filepath.Join would check again
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".nfs") {
			continue
		}
		if e.IsDir() && p.depth > 0 {
			more = append(more, place{dir: join(name), rule: p.rule, depth: p.depth - 1})
		}
		if strings.HasPrefix(name, ".") {
			if lock, ok := tokenOf(name); ok {
				found.Tokens = append(found.Tokens, join(name))
				withToken = append(withToken, lock)
				continue
			}
			if lock, ok := tempOf(name); ok {
				found.Temps = append(found.Temps, join(name))
				withTemp = append(withTemp, lock)
				continue
			}
		}
		if isLockName(name) {
			locks = append(locks, name)
		} else if id, ok := strings.CutSuffix(name, leaseSuffix); ok {
			ids[id] = true
		} else if id, ok := strings.CutSuffix(name, epochSuffix); ok {
			ids[id] = true
		}
	}

	beside := set(withToken)
	isLock := func(name string) bool {
		id, flock := strings.CutSuffix(name, lockSuffix)
		flock = flock && (p.rule == leaseRule || ids[id])
		return name != "" && !flock
	}
	for _, name := range locks {
		if isLock(name) && (p.rule != plainRule || beside[name] || looksLikeLock(join(name), found)) {
			found.Locks = append(found.Locks, join(name))
		}
	}
	if missing := append(withToken, withTemp...); len(missing) > 0 {
		there := set(locks)
		for _, name := range missing {
			if isLock(name) && !there[name] {
				found.Locks = append(found.Locks, join(name))
			}
		}
	}
	if p.rule == leaseRule {
		for _, name := range locks {
			if id, flock := strings.CutSuffix(name, lockSuffix); flock {
				ids[id] = true
			}
		}
		for id := range ids {
			if id != "" && id[0] != '.' {
				found.Leases = append(found.Leases, prefix+id+leaseSuffix)
			}
		}
	}
	return more
}

// set returns nil for no names: most directories have none of most kinds.
func set(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}

// looksLikeLock reports whether a file of a plain directory shows: Cargo.lock and its like belong to others. Of a
// file that may not be read it cannot be told, which is an error of that place.
func looksLikeLock(path string, found *Found) bool {
	_, _, err := record.ReadLock(path)
	problem, ok := errors.AsType[*record.Error](err)
	switch {
	case err == nil:
		return true
	case !ok:
		return false
	case problem.Problem == record.Denied:
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			return true
		}
		found.Errors = append(found.Errors, PlaceError{Path: path, Err: err})
		return false
	default:
		return problem.Torn
	}
}
