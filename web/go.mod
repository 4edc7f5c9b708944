// This module is empty: it keeps the go command out of node_modules, where some packages have Go sources.
module trainyard/web

go 1.26
