package watch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
)

// Watcher looks at roots. Its fields are not changed after first use; its methods may be called at the same time,
// Run once at a time. It remembers what stayed unchanged from look to look, so that one Watcher used for long sees
// more than many: a stamp in the future is told by watching.
//
// Looking writes nothing, takes no lock, follows no link below a root. What it cannot promise: that a snapshot is
// one moment of all files (each is read in turn), and that what comes and goes between two looks is seen.
type Watcher struct {
	// Roots are what to look at: Path and ChosenBy of each; the other fields are filled in snapshots. Required.
	Roots    []Root
	Table    *proc.Table  // how processes are looked at; nil: this machine
	Log      *slog.Logger // nil: discards
	ReadOnly bool         // what Store and Locker return refuses every change

	seq     atomic.Uint64
	mu      sync.Mutex
	rescans chan chan struct{}      // nil: nobody asked yet
	stores  map[string]*lease.Store // by directory
	locker  *fslock.Locker
	names   map[string]*sweep.Names                     // by root
	open    func() (source, error)                      // nil: fsnotify
	fsOf    func(path string) (name string, local bool) // nil: record.FileSystem
	spent   func() time.Duration                        // nil: this process's processor time
	past    past
	looked  atomic.Int64
}

// Looked is how many leases, locks, tokens and temps were looked at in the listings of roots till now, the same ones
// again in every look: while the first Look, or the first look of Run, is under way, how far it is. It waits for nothing.
// What is only being searched for does not count yet, and a file that goes before it is shown did.
func (w *Watcher) Looked() int { return int(w.looked.Load()) }

// Look looks at all roots once. The error is the context's; a place that cannot be looked at is in the snapshot's
// Errors, a missing root has the kind "missing". A directory or file that several roots lead to, by whatever links
// or mounts, is shown once, under the first of them.
func (w *Watcher) Look(ctx context.Context) (*Snapshot, error) {
	looks := make([]*rootLook, len(w.Roots))
	lists := make([][]*Entry, len(w.Roots))
	for i := range w.Roots {
		looks[i] = w.lookAt(ctx, i, nil)
		looks[i].root.Watch = noMode
		lists[i] = looks[i].entries
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := w.assemble(looks, lists, time.Now())
	beside := besides(s.Entries)
	for _, e := range s.Entries {
		if at := turns(e); !at.IsZero() && !at.After(s.Time) { // it may have turned since its file was read
			e.Verdict = brief(e.Judge(s.Time))
			if f, ok := e.Subject.(*verdict.LockFacts); ok && f.Token != nil {
				token := f.Token.Token(s.Time)
				e.Token = &token
			}
		}
		if e.Kind == Lock {
			e.Waiters = waitersOf(e, beside[e.Path], nil)
		}
	}
	s.Seq = w.seq.Add(1)
	return s, nil
}

// Store returns the store of a directory of leases, such as that of an Entry's Path: always the same one, so that
// what was seen of a lease counts when it is claimed.
func (w *Watcher) Store(dir string) *lease.Store {
	dir = filepath.Clean(dir)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stores[dir]
	if s == nil {
		s = &lease.Store{Dir: dir, Table: w.Table, Log: w.Log, ReadOnly: w.ReadOnly, Looked: &w.looked}
		if w.stores == nil {
			w.stores = make(map[string]*lease.Store)
		}
		w.stores[dir] = s
	}
	return s
}

// Locker returns the Locker that looks at all locks, tokens and temps: always the same one, so that what was seen of a
// lock counts when it is taken or broken.
func (w *Watcher) Locker() *fslock.Locker {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locker == nil {
		w.locker = &fslock.Locker{Table: w.Table, Log: w.Log, ReadOnly: w.ReadOnly, Looked: &w.looked}
	}
	return w.locker
}

// namesOf returns what decodes the names below a root; it is kept as long as the root stays what it is.
func (w *Watcher) namesOf(l sweep.Layout) *sweep.Names {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[l.Root]
	if n == nil || n.Layout.Kind != l.Kind || !slices.Equal(n.Layout.LeaseDirs, l.LeaseDirs) {
		n = &sweep.Names{Layout: l}
		if w.names == nil {
			w.names = make(map[string]*sweep.Names)
		}
		w.names[l.Root] = n
	}
	return n
}

func (w *Watcher) table() *proc.Table {
	if w.Table != nil {
		return w.Table
	}
	return proc.Local()
}

func (w *Watcher) log() *slog.Logger {
	if w.Log != nil {
		return w.Log
	}
	return slog.New(slog.DiscardHandler)
}

func (w *Watcher) fileSystem(path string) (name string, local bool) {
	if w.fsOf != nil {
		return w.fsOf(path)
	}
	return record.FileSystem(path)
}

func (w *Watcher) processorTime() time.Duration {
	if w.spent != nil {
		return w.spent()
	}
	return processorTime()
}

// rootLook is what one look at one root gave.
type rootLook struct {
	root    Root
	layout  sweep.Layout
	path    string // the root's, absolute; empty: nothing is there
	place   place  // what the root leads to; zero: nothing
	entries []*Entry
	errors  []EntryError
	dirs    map[string]folder // what is to be watched
	at      time.Time         // when the look began
}

// folder is a directory whose changes can change what lies below a root.
type folder struct {
	place place
	stamp record.Stamp // of a moment after it was listed; one of a change since the look began holds for nobody
}

// place is a directory or file by identity, whatever path or link led to it.
type place struct {
	dev, ino uint64
	path     string // where the system tells no numbers: the cleaned path
}

// lookAt looks at the i-th root. Entries that known returns and that are found unchanged without reading them are taken
// over; known is nil where all are to be read. A finished context makes the look incomplete.
func (w *Watcher) lookAt(ctx context.Context, i int, known func(key) *Entry) *rootLook {
	look := &rootLook{at: time.Now()}
	look.root = Root{Path: w.Roots[i].Path, ChosenBy: w.Roots[i].ChosenBy}
	layout, err := sweep.Recognise(look.root.Path)
	look.layout = layout
	look.root.Kind = layout.Kind.String()
	if layout.Kind.Has(sweep.Missing) {
		look.root.Reason = "there is nothing at this path"
		if err != nil {
			look.root.Reason = err.Error()
			look.fail(layout.Root, err)
		}
		return look
	}
	look.place, _ = placeOf(layout.Root)
	if !layout.Kind.Has(sweep.File) {
		look.root.place = look.place
	}
	look.path = layout.Root
	look.root.FS, look.root.Local = w.fileSystem(layout.Root)
	if !look.root.Local {
		known = nil // another machine's write may not have moved the times that this one is told
	}

	found := layout.Find(ctx)
	look.follow(layout, found)
	for _, e := range found.Errors {
		look.fail(e.Path, e.Err)
	}
	want := paths{
		locks: found.Locks, tokens: found.Tokens, temps: found.Temps, leases: found.Leases, whole: known == nil,
	}
	if layout.LeaseID != "" {
		want.leases = []string{sweep.LeasePath(layout.LeaseDirs[0], layout.LeaseID)}
	}
	var kept []*Entry
	if known != nil {
		kept = want.keep(known)
	}
	fresh := w.read(ctx, want, true)
	w.name(layout, look.root.Path, fresh)
	look.entries = withoutFree(slices.Concat(kept, fresh))
	if !slices.IsSortedFunc(look.entries, inOrder) {
		slices.SortFunc(look.entries, inOrder)
	}
	return look
}

// fail takes note of a place that could not be looked at, once.
func (l *rootLook) fail(path string, err error) {
	if !slices.ContainsFunc(l.errors, func(e EntryError) bool { return e.Path == path }) {
		l.errors = append(l.errors, EntryError{Path: path, Err: err})
	}
}

// paths are files to be looked at.
type paths struct {
	locks, tokens, temps, leases []string
	whole                        bool // the tokens are all that were listed beside the locks
	known                        func(lease string) *verdict.LeaseFacts
}

// keep takes out what is known and unchanged, and returns that.
func (p *paths) keep(known func(key) *Entry) (kept []*Entry) {
	for _, list := range [...]struct {
		kind Kind
		all  *[]string
	}{{Lock, &p.locks}, {Token, &p.tokens}, {Temp, &p.temps}, {Lease, &p.leases}} {
		var rest []string
		for _, path := range *list.all {
			if e := known(key{list.kind, path}); e != nil && unchanged(e, false) {
				kept = append(kept, e)
			} else {
				rest = append(rest, path)
			}
		}
		*list.all = rest
	}
	return kept
}

// read looks at files, and if flocks says so at who holds or wants the flocks of leases. Tokens, temps and leases that are
// not there are left out. The entries are in order if the paths of each kind are.
func (w *Watcher) read(ctx context.Context, p paths, flocks bool) []*Entry {
	// Each has its place, so that whoever looked at it can put it there.
	entries := make([]*Entry, len(p.leases)+len(p.locks)+len(p.tokens)+len(p.temps))
	leases, rest := entries[:len(p.leases)], entries[len(p.leases):]
	for at := 0; at < len(leases) && ctx.Err() == nil; {
		dir := filepath.Dir(p.leases[at])
		var ids []string
		from := leases[at:]
		for ; at < len(leases) && filepath.Dir(p.leases[at]) == dir; at++ {
			id, _ := sweep.LeaseOf(p.leases[at])
			ids = append(ids, id)
		}
		each := lease.Each{Sections: flocks, Tell: func(i int, info lease.Info) { from[i] = leaseEntry(info) }}
		if p.known != nil {
			paths := p.leases[at-len(ids) : at]
			each.Known = func(i int) *verdict.LeaseFacts { return p.known(paths[i]) }
		}
		_ = w.Store(dir).InspectEach(ctx, ids, each) // nothing but the context stops it
	}
	if flocks && ctx.Err() == nil {
		w.sections(leases)
	}
	tokens := rest[len(p.locks):]
	temps := tokens[len(p.tokens):]
	w.Locker().InspectEach(ctx, p.locks, p.tokens, p.temps, fslock.Each{
		Lock:  func(i int, info fslock.Info) { rest[i] = lockEntry(info) },
		Token: func(i int, info fslock.TokenInfo) { tokens[i] = tokenEntry(info) },
		Temp:  func(i int, info fslock.TempInfo) { temps[i] = tempEntry(info) },

		Listed: p.whole,
	})
	return slices.DeleteFunc(entries, func(e *Entry) bool { return e == nil })
}

// leaseEntry is nil if no file of the lease is there.
func leaseEntry(info lease.Info) *Entry {
	if f := info.Facts; f.Missing && f.Counter.Missing && f.Flock == (record.Stamp{}) && f.Section == nil {
		return nil
	}
	return &Entry{
		Kind: Lease, Path: info.Path, ID: info.ID, Subject: info.Facts, Verdict: brief(info.Verdict),
		Epoch: info.Epoch, Raw: info.Raw,
	}
}

func lockEntry(info fslock.Info) *Entry {
	return &Entry{
		Kind: Lock, Path: info.Path, Subject: info.Facts, Verdict: brief(info.Verdict), Token: info.Token, Raw: info.Raw,
	}
}

// tokenEntry is nil if the token is not there.
func tokenEntry(info fslock.TokenInfo) *Entry {
	if info.Facts.Missing {
		return nil
	}
	return &Entry{
		Kind: Token, Path: info.Path, Subject: info.Facts, Verdict: brief(info.Verdict), LockOf: sweep.LockOf(info.Path),
		Raw: info.Raw,
	}
}

// tempEntry is nil if the temp is not there.
func tempEntry(info fslock.TempInfo) *Entry {
	if info.Facts.Missing {
		return nil
	}
	return &Entry{
		Kind: Temp, Path: info.Path, Subject: info.Facts, Verdict: brief(info.Verdict), LockOf: sweep.LockOf(info.Path),
		Raw: info.Raw,
	}
}

// brief is a verdict without what only a person reads: what a look gives is kept, perhaps for hours.
func brief(v verdict.Verdict) verdict.Verdict {
	v.Evidence, v.Originals, v.Next = nil, nil, nil
	return v
}

// name tells entries of the root their names.
func (w *Watcher) name(layout sweep.Layout, root string, entries []*Entry) {
	names := w.namesOf(layout)
	for _, e := range entries {
		name := names.Of(e.Path)
		e.Root, e.Name, e.Checkout = root, name.Short, name.Path
	}
}

// withoutFree leaves out the locks that are missing while no token or temp of them is there.
func withoutFree(entries []*Entry) []*Entry {
	beside := besides(entries)
	return slices.DeleteFunc(entries, func(e *Entry) bool { return isBare(e) && len(beside[e.Path]) == 0 })
}

// isBare reports whether the entry is a lock of which nothing is there, but for temps.
func isBare(e *Entry) bool {
	f, ok := e.Subject.(*verdict.LockFacts)
	return ok && e.Kind == Lock && f.Missing && e.Token == nil
}

// besides are the tokens and temps among entries, by their lock.
func besides(entries []*Entry) map[string][]*Entry {
	beside := make(map[string][]*Entry)
	for _, e := range entries {
		if e.LockOf != "" {
			beside[e.LockOf] = append(beside[e.LockOf], e)
		}
	}
	return beside
}

// follow takes note of the directories whose changes can change what lies below the root: all that were listed, and those
// in which a missing directory of leases would appear.
func (l *rootLook) follow(layout sweep.Layout, found sweep.Found) {
	l.dirs = make(map[string]folder, len(found.Dirs)+4)
	for _, dir := range found.Dirs {
		l.add(dir)
	}
	if layout.Kind.Has(sweep.File) {
		return
	}
	for _, way := range [...][]string{{"agents", "registry"}, {"shared", "agents", "registry"}} {
		dir := layout.Root
		for _, name := range way {
			dir = filepath.Join(dir, name)
			if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
				break
			}
			l.add(dir)
		}
	}
}

func (l *rootLook) add(dir string) {
	var f folder
	st, err := record.StampOf(dir)
	if err == nil && st.Mode.IsDir() && st.Ino != 0 {
		f = folder{place{dev: st.Dev, ino: st.Ino}, st}
	} else {
		f.place, _ = placeOf(dir)
	}
	l.dirs[dir] = f
}

// placeOf returns what a path leads to, links followed; a link that leads nowhere is a place itself.
func placeOf(path string) (place, error) {
	info, err := os.Stat(path)
	if err != nil {
		if info, err = os.Lstat(path); err != nil {
			return place{}, err
		}
	}
	if dev, ino, ok := record.Inode(info); ok {
		return place{dev: dev, ino: ino}, nil
	}
	return place{path: filepath.Clean(path)}, nil
}
