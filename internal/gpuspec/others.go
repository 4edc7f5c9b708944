package gpuspec

// others are the parts of other vendors.
var others = []row{
	{"Instinct MI50 16GB", amd, "GCN5", 16, 1024, 13.3, 0, 26.5, 0, 0, 300, 0, "instinctmi50|mi50|radeoninstinctmi50"},
	{"Instinct MI25", amd, "GCN5", 16, 484, 12.3, 0, 24.6, 0, 0, 300, 0, "instinctmi25|radeoninstinctmi25|mi25|radeonmi25"},
	{"Instinct MI50 32GB", amd, "GCN5", 32, 1024, 13.2, 0, 26.5, 0, 0, 300, 0, "instinctmi50|mi50|radeoninstinctmi50"},
	{"Instinct MI60", amd, "GCN5", 32, 1024, 14.7, 0, 29.5, 0, 0, 300, 0, "instinctmi60|mi60|radeoninstinctmi60"},
	{"Radeon VII", amd, "GCN5", 16, 1024, 13.4, 0, 26.9, 0, 0, 300, 0, "radeonvii|vii"},
	{"Instinct MI100", amd, "CDNA", 32, 1229, 23.1, 0, 184.6, 92.3, 0, 300, 0, "instinctmi100|mi100"},
	{"Instinct MI210", amd, "CDNA2", 64, 1638, 22.6, 0, 181, 181, 0, 300, 0, "instinctmi210|mi210"},
	{"Instinct MI250 (one die)", amd, "CDNA2", 64, 1638, 22.6, 0, 181, 181, 0, 280, 0, "instinctmi250|mi250"},
	{"Instinct MI250X (one die)", amd, "CDNA2", 64, 1638, 23.9, 0, 191.5, 191.5, 0, 280, 0, "instinctmi250x|mi250x"},
	{"Instinct MI300A", amd, "CDNA3", 128, 5300, 122.6, 490.3, 980.6, 980.6, 1961.2, 550, 0, "instinctmi300a|mi300a"},
	{"Instinct MI300X", amd, "CDNA3", 192, 5300, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 750, 668.4, "instinctmi300x|mi300x"},
	{"Instinct MI325X", amd, "CDNA3", 256, 6000, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 1000, 784.9, "instinctmi325x|mi325x"},
	{"Instinct MI350X", amd, "CDNA4", 288, 8000, 144.2, 0, 2306.9, 2306.9, 4613.7, 1000, 0, "instinctmi350x|mi350x"},
	{"Instinct MI355X", amd, "CDNA4", 288, 8000, 157.3, 0, 2516.6, 2516.6, 5033.2, 1400, 1565, "instinctmi355x|mi355x"},
	{"Radeon Pro V520", amd, "RDNA", 8, 512, 7.37, 0, 14.7, 0, 0, 225, 0, "radeonprov520|v520|prov520"},
	{"Radeon RX 6900 XT", amd, "RDNA2", 16, 512, 23, 0, 46.1, 0, 0, 300, 0, "radeonrx6900xt|rx6900xt"},
	{"Radeon PRO W6800", amd, "RDNA2", 32, 512, 17.8, 0, 35.6, 0, 0, 250, 0, "radeonprow6800|prow6800"},
	{"Radeon RX 7900 XTX", amd, "RDNA3", 24, 960, 61.4, 0, 122.8, 122.8, 0, 355, 0, "radeonrx7900xtx|rx7900xtx"},
	{"Radeon PRO W7900", amd, "RDNA3", 48, 864, 61.3, 0, 122.6, 122.6, 0, 295, 0, "radeonprow7900|prow7900"},
	{"Data Center GPU Max 1100", intel, "Xe-HPC", 48, 1229, 22.2, 176, 352, 352, 0, 300, 0, "datacentergpumax1100"},
	{"Data Center GPU Max 1550", intel, "Xe-HPC", 128, 3277, 52.4, 419, 839, 839, 0, 600, 0, "datacentergpumax1550"},
	{"Arc A770 16GB", intel, "Xe-HPG", 16, 560, 17.2, 0, 137.6, 137.6, 0, 225, 0, "arca770graphics|arca770"},
	{"Gaudi 2", intel, "Gaudi", 96, 2450, 0, 0, 0, 432, 865, 600, 0, "gaudi2|hl225"},
	{"Gaudi 3", intel, "Gaudi", 128, 3700, 0, 0, 0, 1835, 1835, 900, 0, "gaudi3|hl325l"},
}
