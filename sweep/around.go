package sweep

import (
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/fslock/record"
)

// Around is what a look at a few files of a root gives.
type Around struct {
	// Found is what Find would list of the files that were looked at and of no others. Its Dirs are directories that
	// Find would walk, whose content this look leaves out.
	Found Found
	// Paths are the files that were looked at, there or not.
	Paths []string
}

// Around looks at the files of these paths and at those that decide with them what is shown: a lease, its counter and
// its flock file; a lock and its token. Of the temps of a lock only those are looked at that are named, and of those that
// temps tells, which are believed to be there, as many as it takes to find one: a lock that is missing is listed while
// its token or a temp is there.
func (l Layout) Around(paths []string, temps func(lock string) iter.Seq[string]) Around {
	names := make(map[string]map[string]bool) // by directory
	for _, path := range paths {
		dir, name := filepath.Split(path)
		dir = filepath.Clean(dir)
		if names[dir] == nil {
			names[dir] = make(map[string]bool)
		}
		for _, n := range family(name) {
			names[dir][n] = true
			if isLockName(n) {
				for t := range temps(filepath.Join(dir, n)) {
					names[dir][filepath.Base(t)] = true
					if _, err := record.StampOf(t); err == nil {
						break
					}
				}
			}
		}
	}
	var a Around
	w := &walker{}
	for dir, some := range names {
		l.around(&a, w, dir, some)
	}
	a.Found = w.result()
	return a
}

func (l Layout) around(a *Around, w *walker, dir string, names map[string]bool) {
	var there []fs.DirEntry
	for name := range names {
		path := filepath.Join(dir, name)
		a.Paths = append(a.Paths, path)
		if st, err := record.StampOf(path); err == nil {
			there = append(there, seen{name, st.Mode})
		}
	}
	slices.SortFunc(there, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, p := range l.placesOf(dir) {
		var more []place
		if p.rule == storageRule {
			more = storage(p, there, &w.found)
		} else {
			more = sift(p, there, &w.found)
		}
		for _, m := range more {
			w.found.Dirs = append(w.found.Dirs, m.dir)
		}
	}
}

// seen is an entry of a directory that was looked at by its name.
type seen struct {
	name string
	mode fs.FileMode
}

func (s seen) Name() string               { return s.name }
func (s seen) IsDir() bool                { return s.mode.IsDir() }
func (s seen) Type() fs.FileMode          { return s.mode.Type() }
func (s seen) Info() (fs.FileInfo, error) { return nil, fs.ErrInvalid }

// placesOf says by which rules a walk of the root would list dir.
func (l Layout) placesOf(dir string) []place {
	var places []place
	if slices.Contains(l.LeaseDirs, dir) {
		places = append(places, place{dir: dir, rule: leaseRule})
	}
	var folders []string
	if dir != l.Root {
		rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(l.Root, string(filepath.Separator))+string(filepath.Separator))
		if !ok {
			return places
		}
		folders = strings.Split(rest, string(filepath.Separator))
	}
	switch {
	case l.Kind.Has(Plain):
		if len(folders) <= depth {
			places = append(places, place{dir: dir, rule: plainRule, depth: depth - len(folders)})
		}
	case !l.Kind.Has(AFT):
	case len(folders) == 0:
		places = append(places, place{dir: dir, rule: storageRule})
	case slices.Contains(domains[:], folders[0]):
		if len(folders)-1 <= depth {
			places = append(places, place{dir: dir, rule: lockRule, depth: depth - (len(folders) - 1)})
		}
	case len(folders) == 4 && isHarness(folders[0]) && folders[1] == "backups" && folders[3] == ".locks":
		places = append(places, place{dir: dir, rule: lockRule})
	}
	return places
}

// family are the names of the files that decide with the one of that name what is shown, itself included.
func family(name string) []string {
	stem := stem(name)
	if stem == name {
		return []string{name}
	}
	all := []string{
		stem + leaseSuffix, stem + epochSuffix, stem + lockSuffix, stem + leaseLock,
		"." + stem + lockSuffix + reclaim, "." + stem + leaseLock + reclaim,
	}
	if !slices.Contains(all, name) {
		all = append(all, name)
	}
	return all
}

// Stem is what the paths of all files have in common that decide together what is shown.
func Stem(path string) string {
	dir, name := filepath.Split(path)
	return dir + stem(name)
}

func stem(name string) string {
	lock, part := tokenOf(name)
	if !part {
		lock, part = tempOf(name)
	}
	if lock != "" {
		name = lock
	} else if part {
		return name // a lease's temp belongs to nobody
	}
	for _, suffix := range [...]string{leaseSuffix, epochSuffix, lockSuffix, leaseLock} {
		if s, ok := strings.CutSuffix(name, suffix); ok {
			return s
		}
	}
	return name
}
