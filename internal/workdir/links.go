package workdir

import (
	"path"
	"strings"

	"trainyard/internal/api"
)

// maxHops is how many links may lead through each other, as in Linux.
const maxHops = 40

// links resolves the links of a manifest as the kernel would, without a folder. Each link is resolved once.
type links struct {
	targets map[string]string // by the path of the link
	ends    map[string]end    // where links lead that were followed
}

// end is where a link leads.
type end struct {
	at     string // path inside, "" for the folder itself
	hops   int    // links on the way
	wrong  string // why it is refused, "" if it is not
	nobody bool   // it leads to itself, and so nowhere
}

// checkLinks refuses links that lead outside through others: the text of each may stay inside, as that of x does in
//
//	a/b/l -> ../..
//	x -> a/b/l/../secret
func checkLinks(files []api.ManifestFile) error {
	l := links{targets: map[string]string{}, ends: map[string]end{}}
	for _, f := range files {
		if f.Link != "" {
			l.targets[f.Path] = f.Link
		}
	}

	for _, f := range files {
		if f.Link == "" {
			continue
		}

		if wrong := l.follow(f.Path, 1).wrong; wrong != "" {
			return badManifest(f.Path, "%s", wrong)
		}
	}

	return nil
}

// follow returns where a link leads that is reached by a number of hops.
func (l *links) follow(name string, hops int) end {
	known, ok := l.ends[name]
	switch {
	case ok && hops-1+known.hops <= maxHops:
		return known
	case ok || hops > maxHops:
		return end{wrong: "is a link that leads through too many others"}
	}

	l.ends[name] = end{nobody: true} // whoever comes here again is going in circles

	found := end{at: folderOf(name), hops: 1}
	for element := range strings.SplitSeq(l.targets[name], "/") {
		found = l.step(found, element, hops)
		if found.wrong != "" || found.nobody {
			break
		}
	}

	l.ends[name] = found

	return found
}

// step goes on from a place by one element of a link.
func (l *links) step(from end, element string, hops int) end {
	switch {
	case element == "" || element == ".":
		return from
	case element == ".." && from.at == "":
		return end{wrong: "is a link that points outside"}
	case element == "..":
		from.at = folderOf(from.at)
		return from
	}

	from.at = path.Join(from.at, element)
	if len(from.at) > maxPath {
		return end{wrong: "is a link whose end has a path that is too long"}
	}
	if _, isLink := l.targets[from.at]; !isLink {
		return from
	}

	next := l.follow(from.at, hops+1)
	next.hops = max(from.hops, next.hops+1)

	return next
}

// folderOf returns the folder of a path, "" for the folder itself.
func folderOf(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}

	return ""
}
