package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/lease"
	"holdfast/sweep"
	"holdfast/watch"
)

// roots are where to look: the arguments, --root, or what is discovered.
func (a *app) roots(args []string) ([]watch.Root, error) {
	var roots []watch.Root
	add := func(path, chosenBy string) error {
		abs, err := filepath.Abs(path)
		if err != nil {
			return failed(err)
		}
		// One that is given twice, be it by another name, is one: nothing is told or counted twice.
		if !slices.ContainsFunc(roots, func(r watch.Root) bool { return r.Path == abs || sameFile(r.Path, abs) }) {
			roots = append(roots, watch.Root{Path: abs, ChosenBy: chosenBy})
		}
		return nil
	}
	for _, arg := range args {
		if err := add(arg, "argument"); err != nil {
			return nil, err
		}
	}
	if a.root != "" {
		if err := add(a.root, "--root"); err != nil {
			return nil, err
		}
	}
	if len(roots) == 0 {
		roots = watch.Discover(a.Getenv, a.Home)
	}
	return roots, nil
}

// layouts recognises the roots where an ID is looked up. A root that cannot be looked at hides no other: its error
// counts only where nothing else is found.
func (a *app) layouts() (layouts []sweep.Layout, unseen, err error) {
	roots, err := a.roots(nil)
	if err != nil {
		return nil, nil, err
	}
	for _, root := range roots {
		layout, err := sweep.Recognise(root.Path)
		if err != nil {
			unseen = err
			continue
		}
		layouts = append(layouts, layout)
	}
	return layouts, unseen, nil
}

// spot is where one lease is, or would be.
type spot struct {
	id    string
	dir   string
	found bool // a file of that id is there
}

// lookUp finds the one directory that holds the lease of an id, or of the agent of that name. An id in several
// directories is two leases: nobody but the person knows which is meant.
func (a *app) lookUp(ctx context.Context, arg string) (spot, error) {
	if err := lease.CheckID(arg); err != nil {
		return spot{}, &problem{code: codeUsage, err: err}
	}
	a.lookedUp = true
	layouts, unseen, err := a.layouts()
	if err != nil {
		return spot{}, err
	}
	var dirs []string
	for _, l := range layouts {
		dirs = append(dirs, l.LeaseDirs...)
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	var found []spot
	for _, dir := range dirs {
		if hasLease(dir, arg) {
			found = append(found, spot{id: arg, dir: dir, found: true})
		}
	}
	if len(found) == 0 {
		if found, err = byName(ctx, layouts, arg); err != nil {
			return spot{}, err
		}
	}
	switch {
	case len(found) > 1:
		var places []string
		for _, s := range found {
			places = append(places, filepath.Join(s.dir, s.id))
		}
		return spot{}, &problem{
			code: codeUsage, err: fmt.Errorf("%s is in several places: %s", arg, strings.Join(places, ", ")),
			hint: "Name one of them with --root.",
		}
	case len(found) == 1:
		return found[0], nil
	case len(dirs) > 1:
		return spot{}, &problem{
			code: codeUsage, err: fmt.Errorf("there is no lease %s in %s", arg, strings.Join(dirs, ", ")),
			hint: "Name the place of a new one with --root.",
		}
	case len(dirs) == 1:
		return spot{id: arg, dir: dirs[0]}, nil
	case unseen != nil:
		return spot{}, notSeen(unseen)
	}
	place, err := a.newPlace(arg, layouts)
	if err == nil {
		// In a directory that may not be searched the lease may be there all the same.
		if _, serr := os.Lstat(place.dir); errors.Is(serr, fs.ErrPermission) {
			return spot{}, notSeen(serr)
		}
	}
	return place, err
}

// notSeen is the error of a place that could not be looked at. What is denied is unreadable, as a lease in it would be.
func notSeen(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &problem{code: codeUnreadable, err: err, hint: whoMayRead + " --root names another place."}
	}
	return failed(err)
}

func hasLease(dir, id string) bool {
	for _, suffix := range [...]string{".lease.json", ".epoch", ".lock"} {
		if _, err := os.Lstat(filepath.Join(dir, id+suffix)); err == nil {
			return true
		}
	}
	return false
}

// byName finds the leases of the agents that a person knows by that name.
func byName(ctx context.Context, layouts []sweep.Layout, name string) ([]spot, error) {
	var found []spot
	for i := range layouts {
		names := &sweep.Names{Layout: layouts[i]}
		for _, dir := range layouts[i].LeaseDirs {
			infos, err := (&lease.Store{Dir: dir}).List(ctx)
			if err != nil {
				return nil, notSeen(err)
			}
			for _, info := range infos {
				s := spot{id: info.ID, dir: dir, found: true}
				if names.Of(info.Path).Short == name && !slices.Contains(found, s) {
					found = append(found, s)
				}
			}
		}
	}
	return found, nil
}

// registry is where AgentMux keeps its leases inside its shared directory.
const registry = "agents/registry/leases"

// newPlace is the directory in which AgentMux would keep its first lease, where there is none yet. It is not made.
func (a *app) newPlace(id string, layouts []sweep.Layout) (spot, error) {
	if a.root == "" {
		for _, root := range watch.Discover(a.Getenv, a.Home) {
			// Discovery names AgentMux's root and AFT's; only the first keeps leases.
			if i := slices.IndexFunc(layouts, func(l sweep.Layout) bool { return l.Root == root.Path }); i >= 0 && isAgentMux(root) {
				if layouts[i].Kind.Has(sweep.Missing) {
					return spot{}, &problem{
						code: codeUsage, err: fmt.Errorf("there is no AgentMux directory %s (chosen by %s)", root.Path, root.ChosenBy),
						hint: "Name the place of the lease with --root.",
					}
				}
				return spot{id: id, dir: filepath.Join(root.Path, filepath.FromSlash(registry))}, nil
			}
		}
		return spot{}, usage("no place of leases is known; name one with --root")
	}
	layout := layouts[0]
	dir := filepath.Join(layout.Root, "leases")
	switch {
	case layout.Kind.Has(sweep.Missing):
		return spot{}, usage("--root %s: there is no such directory", a.root)
	case layout.Kind.Has(sweep.File):
		return spot{}, usage("--root %s: that is a file, no place of leases", a.root)
	case layout.Kind.Has(sweep.AFT):
		return spot{}, usage("--root %s: AFT keeps locks there, no leases", a.root)
	case filepath.Base(layout.Root) == "leases":
		dir = layout.Root
	case isDir(filepath.Join(layout.Root, "agents", "registry")):
		dir = filepath.Join(layout.Root, filepath.FromSlash(registry))
	default:
		// AgentMux itself would look for its own root's leases deeper: a second place would be a second lease.
		for _, root := range watch.Discover(a.Getenv, a.Home) {
			if isAgentMux(root) && sameFile(root.Path, layout.Root) {
				dir = filepath.Join(layout.Root, filepath.FromSlash(registry))
			}
		}
	}
	return spot{id: id, dir: dir}, nil
}

// isAgentMux tells AgentMux's root among those that are discovered.
func isAgentMux(root watch.Root) bool {
	return strings.HasPrefix(root.ChosenBy, "$AGENTMUX_") ||
		strings.HasSuffix(root.Path, filepath.FromSlash("/.agentmux/shared"))
}

// absolute is the path from the root. It names the same file: behind a link, ".." is another place than the letters say.
func absolute(path string) (string, error) {
	if !slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		return filepath.Abs(path)
	}
	if !filepath.IsAbs(path) {
		wd, err := os.Getwd()
		if err != nil {
			return "", err
		}
		path = wd + string(filepath.Separator) + path
	}
	dir, name := filepath.Split(path)
	if name == ".." {
		dir, name = path, ""
	}
	if dir, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Join(dir, name), nil
	}
	return path, nil // whoever opens it is told why that does not go
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
