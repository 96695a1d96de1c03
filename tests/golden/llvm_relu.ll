target triple = "x86_64-unknown-linux-gnu"

define i32 @relu(ptr %context, ptr %state, ptr %inputs, ptr %outputs) noinline optnone nounwind "no-builtins" "prefer-vector-width"="512" "graft-brief" {
  %v1 = getelementptr inbounds ptr, ptr %inputs, i64 0
  %v2 = load ptr, ptr %v1, align 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr inbounds i8, ptr %v2, i64 40
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds i8, ptr %v3, i64 %v5
  %v7 = getelementptr inbounds ptr, ptr %outputs, i64 0
  %v8 = load ptr, ptr %v7, align 8
  %v9 = load ptr, ptr %v8, align 8
  %v10 = getelementptr inbounds i8, ptr %v8, i64 40
  %v11 = load i64, ptr %v10, align 8
  %v12 = getelementptr inbounds i8, ptr %v9, i64 %v11
  %status = call i32 @relu.body(ptr %context, ptr %v6, ptr %v12)
  ret i32 %status
}
define internal i32 @relu.body(ptr %context, ptr noalias readonly dereferenceable(400) %p0, ptr noalias dereferenceable(400) %p1) noinline nounwind "no-builtins" "prefer-vector-width"="512" {
entry:
  br label %start
start:
  br label %loop1
loop1:
  %loop1.i = phi i64 [ 0, %start ], [ %loop1.i.next, %loop1 ]
  %v2 = mul nsw i64 %loop1.i, -16
  %v3 = add nsw i64 %v2, 100
  %v4 = call i64 @llvm.smax.i64(i64 %v3, i64 0)
  %v5 = call i64 @llvm.umin.i64(i64 %v4, i64 16)
  %v6 = trunc i64 %v5 to i32
  %v7 = insertelement <16 x i32> poison, i32 %v6, i64 0
  %v8 = shufflevector <16 x i32> %v7, <16 x i32> poison, <16 x i32> zeroinitializer
  %v9 = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v8
  %v10 = mul nsw i64 %loop1.i, 16
  %v11 = getelementptr inbounds float, ptr %p0, i64 %v10
  %v12 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4 %v11, <16 x i1> %v9, <16 x float> zeroinitializer)
  %v13 = fcmp ogt <16 x float> splat (float 0x0000000000000000), %v12
  %v14 = select <16 x i1> %v13, <16 x float> splat (float 0x0000000000000000), <16 x float> %v12
  %v15 = getelementptr inbounds float, ptr %p1, i64 %v10
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v14, ptr align 4 %v15, <16 x i1> %v9)
  %loop1.i.next = add nuw nsw i64 %loop1.i, 1
  %v16 = icmp slt i64 %loop1.i.next, 7
  br i1 %v16, label %loop1, label %loop1.end
loop1.end:
  ret i32 0
}
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr align 4, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr align 4, <16 x i1>)
