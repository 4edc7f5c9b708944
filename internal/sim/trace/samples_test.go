package trace_test

// Small samples of every format, each with the same mistake to be found in its
// second row by the tests of bad rows.

const swfSample = `; Version: 2.2
; Computer: IBM SP2
; MaxProcs: 100
; MaxNodes: 50
; UnixStartTime: 843480031
; Note: uses the EASY scheduler
 1   100 964980  97225   56 -1 -1 56 210000 -1  1   1   1  -1 3 -1 -1 -1
 2   327 291900      0   80 -1 -1 -1     -1 -1  1   2   2  -1 4 -1 -1 -1
 3   400     -1     -1   80 -1 -1 -1     -1 -1  5   2   2  -1 4 -1 -1 -1
; a remark among the rows
 4   500     -1     60    4 -1 -1 -1     -1 -1  1  -1   2  -1 4 -1 -1 -1 {1,2} queue
`

const phillySample = `timestamp,duration,num_gpus,gpu_time,cluster
2017-09-04 10:30:41,2240194.0,8,17921552.0,7f04ca
2017-09-04 10:30:51,0.0,1,0.0,6214e9
2017-09-04 10:31:41,60.0,16,960.0,7f04ca
`

const phillyLogSample = `[
  {"status": "Pass", "vc": "ee9e8c", "jobid": "application_2", "user": "Ann B", "submitted_time": "2017-10-07 01:00:00",
   "attempts": [
     {"start_time": "2017-10-07 01:00:10", "end_time": "2017-10-07 01:00:20", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
     {"start_time": "2017-10-07 01:01:00", "end_time": "2017-10-07 01:02:00", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu6", "gpu7"]}]}]},
  {"status": "Killed", "vc": "ee9e8c", "jobid": "application_1", "submitted_time": "2017-10-07 00:59:00",
   "attempts": [{"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 01:00:30", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1", "gpu2"]}, {"ip": "m2", "gpus": ["gpu0"]}]}]},
  {"status": "Failed", "vc": "ee9e8c", "jobid": "application_3", "submitted_time": "2017-10-07 02:00:00", "attempts": [{"start_time": "None", "end_time": null, "detail": []}]}
]
`

const heliosSample = `job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,u1,vcA,train,16,64,2,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 01:01:00,3600,60
12,u2,vcB,prep,0,8,1,FAILED,2020-04-01 00:00:05,2020-04-01 00:01:00,2020-04-01 00:02:00,60,55
13,u1,vcA,never,4,16,1,CANCELLED,2020-04-01 00:00:10,,,,
14,u3,vcA,odd,3,6,2,COMPLETED,2020-04-01 00:00:20,2020-04-01 00:01:00,2020-04-01 00:01:30,30.0,40
`

const paiSample = `job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
a1,worker,4.0,Terminated,100.0,400.0,600.0,29.3,50.0,MISC
b2,tensorflow,1.0,Failed,150.0,250.0,1200.0,58.6,250.0,V100
c3,ps,2.0,Terminated,160.0,260.0,600.0,10.0,,CPU
d4,worker,1.0,Running,170.0,,600.0,10.0,100.0,T4
`

const openbSample = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,1000,5000,1500
openb-pod-0001,6000,12288,1,460,V100M16|V100M32,BE,Running,1100,1700,1200
openb-pod-0002,4000,1024,0,0,,LS,Running,1200,1800,1300
openb-pod-0003,6000,12288,8,1000,,LS,Pending,1300,1900,
`

const gavelSample = "ResNet-18 (batch size 128)\tpython3 main.py\timage\t--num_steps\t1\t900\t4\t1\t-1.000000\t0\n" +
	"LM (batch size 5)\tcd %s && python main.py\t--steps\t1\t1000\t303.000000\t1\n"

const gavelTables = `{
"v100": {"('ResNet-18 (batch size 128)', 4)": {"null": 70.5, "('LM (batch size 5)', 1)": [1, 2]}, "('LM (batch size 5)', 1)": {"null": 10}},
"v100_unconsolidated": {"('ResNet-18 (batch size 128)', 4)": {"null": 35.25}},
"k80": {"('ResNet-18 (batch size 128)', 4)": {"null": 0.0}, "('LM (batch size 5)', 1)": {"null": 2.5}}
}`

const summitSample = `job,model,t_submit_s,scale_up_s,scale_down_s,min_nodes,max_nodes,total_images
J00000,AlexNet,72743,17.788,11.273,1,64,130000000
J00001,vgg16,72779,17.533,11.296,2,32,130000000
`

const summitTables = `model,nodes,images_per_s
AlexNet,0,0
AlexNet,1,7000.5
AlexNet,2,13000
vgg16,1,1000
`

const yardSample = `{"seq":1,"at":"2026-11-01T10:00:00Z","kind":"node.joined","actor":"token/x","node":"gpu1"}
{"seq":2,"at":"2026-11-01T10:00:10Z","kind":"job.submitted","actor":"ann","owner":"ann","job":"j1","to":"pending","spec":{"run":"python a.py","env":{"A":"1"},"needs":["j0"],"resources":{"gpus":"2","nodes":"1"},"deadline":"2026-11-01T11:00:10Z","place":"any"}}
{"seq":3,"at":"2026-11-01T10:00:20Z","kind":"job.submitted","actor":"bob","owner":"bob","job":"j2","to":"pending"}
{"seq":4,"at":"2026-11-01T10:00:30Z","kind":"job.starting","actor":"yard","owner":"ann","job":"j1","from":"pending","to":"starting"}
{"seq":5,"at":"2026-11-01T10:01:00Z","kind":"job.running","actor":"yard","owner":"ann","job":"j1","from":"starting","to":"running"}
{"seq":6,"at":"2026-11-01T10:01:10Z","kind":"job.running","actor":"yard","owner":"bob","job":"j2","from":"starting","to":"running"}
{"seq":7,"at":"2026-11-01T10:01:20Z","kind":"job.succeeded","actor":"yard","owner":"bob","job":"j2","from":"running","to":"succeeded"}
{"seq":8,"at":"2026-11-01T10:02:00Z","kind":"job.recovering","actor":"yard","owner":"ann","job":"j1","from":"running","to":"recovering"}
{"seq":9,"at":"2026-11-01T10:03:00Z","kind":"job.running","actor":"yard","owner":"ann","job":"j1","from":"starting","to":"running"}
{"seq":10,"at":"2026-11-01T10:03:30Z","kind":"job.cancelling","actor":"ann","owner":"ann","job":"j1","from":"running","to":"cancelling"}
{"seq":11,"at":"2026-11-01T10:03:40Z","kind":"job.cancelled","actor":"yard","owner":"ann","job":"j1","from":"cancelling","to":"cancelled"}
{"seq":12,"at":"2026-11-01T10:03:41Z","kind":"job.submitted","actor":"ann","owner":"ann","job":"j3","to":"pending"}
{"seq":13,"at":"2026-11-01T10:03:42Z","kind":"job.cancelled","actor":"ann","owner":"ann","job":"j3","from":"pending","to":"cancelled"}
`

const csvSample = `id;who;asked;began;done;cards;ram;due
7;Ann;2026-01-05T10:00;2026-01-05T10:05;2026-01-05T11:05;4;8192;2026-01-05T12:00
8;"Bob; jr";2026-01-05T10:01;;;1;1;
9;Cy;2026-01-05T10:02;2026-01-05T10:02;2026-01-05T10:02;2;1024;
`

const csvMapping = `columns: {name: id, owner: who, submit: asked, start: began, end: done, gpus: cards, memory: ram, deadline: due}
constants: {nodes: 1, late_cost: "2.5", priority: "7"}
time: 2006-01-02T15:04
memory: MB
delimiter: ";"
`
