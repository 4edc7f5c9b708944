package glob

// Part matches one name with one pattern without slashes: "*" is any
// text, "?" any one byte, "[a-z]" and "[!a-z]" are classes, "\" takes the next
// byte as it is. It goes back to the last "*" only, so that it takes at most
// the product of the two lengths.
func Part(pattern, name string) bool {
	p, n := 0, 0
	starP, starN := -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			starP, starN = p, n
			p++
			continue
		}

		if width, ok := matchOne(pattern[p:], name[n]); ok {
			p, n = p+width, n+1
			continue
		}

		if starP < 0 {
			return false
		}

		starN++
		p, n = starP+1, starN
	}

	for p < len(pattern) && pattern[p] == '*' {
		p++
	}

	return p == len(pattern)
}

// matchOne matches one byte with the beginning of a pattern that is no "*", and
// returns how much of the pattern that took.
func matchOne(pattern string, c byte) (width int, ok bool) {
	if pattern == "" {
		return 0, false
	}

	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		return matchClass(pattern, c)
	case '\\':
		if len(pattern) < 2 {
			return 0, false
		}

		return 2, pattern[1] == c
	}

	return 1, pattern[0] == c
}

// matchClass matches a byte with a class such as [a-z_] or [!0-9]. A class that
// does not end matches nothing.
func matchClass(pattern string, c byte) (width int, ok bool) {
	i := 1
	negated := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if negated {
		i++
	}

	found := false
	for first := true; i < len(pattern); first = false {
		if pattern[i] == ']' && !first {
			return i + 1, found != negated
		}

		lo, next, good := classByte(pattern, i)
		if !good {
			return 0, false
		}

		i = next

		hi := lo
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			hi, i, good = classByte(pattern, i+1)
			if !good {
				return 0, false
			}
		}

		found = found || lo <= c && c <= hi
	}

	return 0, false
}

// classByte reads one byte of a class, which a backslash may protect.
func classByte(pattern string, i int) (c byte, next int, ok bool) {
	if pattern[i] == '\\' {
		i++
	}

	if i >= len(pattern) {
		return 0, i, false
	}

	return pattern[i], i + 1, true
}
