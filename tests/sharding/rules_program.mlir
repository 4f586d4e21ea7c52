// Operations of all families, for comparing factor rules with Shardy's.
func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %z: tensor<f32>, %i: tensor<3x1xi32>, %c: tensor<6x8xf32>) -> tensor<4x16xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %1 = stablehlo.reshape %0 : (tensor<4x16xf32>) -> tensor<2x1x32xf32>
  %2 = stablehlo.concatenate %a, %c, dim=0 : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<10x8xf32>
  %3 = stablehlo.pad %a, %z, low=[0,1], high=[0,1], interior=[0,0] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x10xf32>
  %4 = stablehlo.slice %a [0:4, 0:4] : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %5 = stablehlo.broadcast_in_dim %z, dims=[] : (tensor<f32>)->tensor<4x4xf32>
  %6 = stablehlo.reshape %4 : (tensor<4x4xf32>) -> tensor<1x4x1x4xf32>
  %8 = stablehlo.iota dim=0 : tensor<4x8xi32>
  %9 = "stablehlo.gather"(%b, %i) <{dimension_numbers = #stablehlo.gather<offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1>, slice_sizes = array<i64: 1, 16>}> : (tensor<8x16xf32>, tensor<3x1xi32>) -> tensor<3x16xf32>
  %10:2 = "stablehlo.sort"(%a, %8) <{dimension=1:i64}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>,%v:tensor<i32>,%w:tensor<i32>):
     %k = stablehlo.compare LT, %x, %y : (tensor<f32>,tensor<f32>)->tensor<i1>
     stablehlo.return %k : tensor<i1>}) : (tensor<4x8xf32>, tensor<4x8xi32>) -> (tensor<4x8xf32>, tensor<4x8xi32>)
  %11 = stablehlo.tanh %0 : tensor<4x16xf32>
  return %11 : tensor<4x16xf32>
}

func.func @f2(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %z: tensor<f32>, %i: tensor<3x1xi32>, %c: tensor<6x8xf32>, %s: tensor<i32>, %img: tensor<8x16x16x4xf32>, %ker: tensor<3x3x2x8xf32>, %u: tensor<3x16xf32>, %p: tensor<i1>, %ii: tensor<4x3x1xi32>, %w:tensor<4x8x16xf32>, %ww:tensor<4x8x8xf32>) -> () {
  %2 = stablehlo.reverse %a, dims=[0] : tensor<4x8xf32>
  %3 = stablehlo.dynamic_slice %a, %s, %s, sizes=[4,3] : (tensor<4x8xf32>,tensor<i32>,tensor<i32>)->tensor<4x3xf32>
  %4 = stablehlo.dynamic_update_slice %a, %3, %s, %s : (tensor<4x8xf32>, tensor<4x3xf32>,tensor<i32>,tensor<i32>)->tensor<4x8xf32>
  %5 = stablehlo.convolution(%img, %ker) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 2], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<8x16x16x4xf32>, tensor<3x3x2x8xf32>)->tensor<8x16x8x8xf32>
  %6 = "stablehlo.scatter"(%b, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1>}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     %k = stablehlo.add %x, %y : tensor<f32>
     stablehlo.return %k : tensor<f32>}) : (tensor<8x16xf32>, tensor<3x1xi32>, tensor<3x16xf32>) -> tensor<8x16xf32>
  %7 = "stablehlo.gather"(%w, %ii) <{dimension_numbers = #stablehlo.gather<offset_dims=[2], collapsed_slice_dims=[1], operand_batching_dims=[0], start_indices_batching_dims=[0], start_index_map=[1], index_vector_dim=2>, slice_sizes = array<i64: 1, 1, 16>}> : (tensor<4x8x16xf32>, tensor<4x3x1xi32>) -> tensor<4x3x16xf32>
  %8 = "stablehlo.reduce_window"(%a, %z) <{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     %k = stablehlo.maximum %x, %y : tensor<f32>
     stablehlo.return %k : tensor<f32>}) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x4xf32>
  %10 = stablehlo.cholesky %ww, lower=true : tensor<4x8x8xf32>
  %11 = stablehlo.transpose %w, dims=[2,0,1] : (tensor<4x8x16xf32>)->tensor<16x4x8xf32>
  %12 = stablehlo.reduce(%w init: %z) applies stablehlo.add across dimensions = [1] : (tensor<4x8x16xf32>, tensor<f32>) -> tensor<4x16xf32>
  %13 = stablehlo.iota dim=0 : tensor<4x4xi32>
  %14 = stablehlo.bitcast_convert %13 : (tensor<4x4xi32>) -> tensor<4x4x4xi8>
  %15 = stablehlo.bitcast_convert %14 : (tensor<4x4x4xi8>) -> tensor<4x4xi32>
  %16 = stablehlo.fft %w, type=RFFT, length=[16] : (tensor<4x8x16xf32>)->tensor<4x8x9xcomplex<f32>>
  %17 = "stablehlo.select_and_scatter"(%a, %8, %z) <{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     %k = stablehlo.compare GT, %x, %y : (tensor<f32>,tensor<f32>)->tensor<i1>
     stablehlo.return %k : tensor<i1>},{^bb0(%x:tensor<f32>,%y:tensor<f32>):
     %k = stablehlo.add %x, %y : tensor<f32>
     stablehlo.return %k : tensor<f32>}) : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<f32>) -> tensor<4x8xf32>
  %18 = stablehlo.reshape %w : (tensor<4x8x16xf32>) -> tensor<16x32xf32>
  %19 = stablehlo.reshape %b : (tensor<8x16xf32>) -> tensor<8x1x16xf32>
  %20 = stablehlo.reshape %c : (tensor<6x8xf32>) -> tensor<3x16xf32>
  %21 = stablehlo.reshape %c : (tensor<6x8xf32>) -> tensor<4x12xf32>
  %22 = stablehlo.slice %b [0:8:2, 0:16] : (tensor<8x16xf32>)->tensor<4x16xf32>
  %23 = "stablehlo.sort"(%a) <{dimension=1:i64}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     %k = stablehlo.compare LT, %x, %y : (tensor<f32>,tensor<f32>)->tensor<i1>
     stablehlo.return %k : tensor<i1>}) : (tensor<4x8xf32>) -> (tensor<4x8xf32>)
  %26 = stablehlo.constant dense<0> : tensor<2xui64>
  %28 = stablehlo.constant dense<0.0> : tensor<8xf32>
  %29 = stablehlo.convolution(%img, %img) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<8x16x16x4xf32>)->tensor<3x3x4x4xf32>
  %34 = stablehlo.constant dense<4> : tensor<2xi64>
  %37 = stablehlo.complex %a, %a : tensor<4x8xcomplex<f32>>
  return
}
func.func @f3(%x: tensor<2xui64>, %a: tensor<4x8xf32>, %v: tensor<8xf32>, %z: tensor<f32>, %i: tensor<5x3x2xi32>, %t: tensor<6x8x16xf32>, %u: tensor<5x3x2x8xf32>)  {
  %7 = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<offset_dims=[2,3], collapsed_slice_dims=[0], start_index_map=[0,2], index_vector_dim=2>, slice_sizes = array<i64: 1, 8, 2>}> : (tensor<6x8x16xf32>, tensor<5x3x2xi32>) -> tensor<5x3x8x2xf32>
  %p = stablehlo.pad %a, %z, low=[0,1], high=[0,-3], interior=[0,1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x13xf32>
  return
}

func.func @f4(%a: tensor<6x8x16xf32>, %i: tensor<5x3x2xi32>, %i4: tensor<4x5x2xi32>, %u: tensor<5x3x8x2xf32>, %z: tensor<f32>, %s: tensor<i32>, %b: tensor<4x7x8x16xf32>) {
  %v8 = stablehlo.constant dense<0.0> : tensor<4x5x8xf32>
  %v10 = stablehlo.constant dense<0> : tensor<5x3xi32>
  %v12 = stablehlo.constant dense<0> : tensor<1xi32>
  %v16 = stablehlo.constant dense<0> : tensor<5x2xi32>
  %v0 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<offset_dims=[2,3,4], start_index_map=[0,2], index_vector_dim=2>, slice_sizes = array<i64: 1, 8, 2>}> : (tensor<6x8x16xf32>, tensor<5x3x2xi32>) -> tensor<5x3x1x8x2xf32>
  %v1 = "stablehlo.gather"(%a, %i) <{dimension_numbers = #stablehlo.gather<offset_dims=[0,1], collapsed_slice_dims=[1], start_index_map=[1,2], index_vector_dim=2>, slice_sizes = array<i64: 6, 1, 16>}> : (tensor<6x8x16xf32>, tensor<5x3x2xi32>) -> tensor<6x16x5x3xf32>
  %v6 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims=[2,3], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0,2], index_vector_dim=2>}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     stablehlo.return %y : tensor<f32>}) : (tensor<6x8x16xf32>, tensor<5x3x2xi32>, tensor<5x3x8x2xf32>) -> tensor<6x8x16xf32>
  %v7 = "stablehlo.scatter"(%b, %i4, %v8) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims=[2], inserted_window_dims=[1,3], scatter_dims_to_operand_dims=[1,3], input_batching_dims=[0], scatter_indices_batching_dims=[0], index_vector_dim=2>}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     %k = stablehlo.maximum %x, %y : tensor<f32>
     stablehlo.return %k : tensor<f32>}) : (tensor<4x7x8x16xf32>, tensor<4x5x2xi32>, tensor<4x5x8xf32>) -> tensor<4x7x8x16xf32>
  %v9 = "stablehlo.gather"(%a, %v10) <{dimension_numbers = #stablehlo.gather<offset_dims=[0,1], collapsed_slice_dims=[1], start_index_map=[1], index_vector_dim=2>, slice_sizes = array<i64: 6, 1, 16>}> : (tensor<6x8x16xf32>, tensor<5x3xi32>) -> tensor<6x16x5x3xf32>
  %v11 = "stablehlo.gather"(%a, %v12) <{dimension_numbers = #stablehlo.gather<offset_dims=[0,1], collapsed_slice_dims=[1], start_index_map=[1], index_vector_dim=0>, slice_sizes = array<i64: 6, 1, 16>}> : (tensor<6x8x16xf32>, tensor<1xi32>) -> tensor<6x16xf32>
  %v13 = stablehlo.dynamic_slice %a, %s, %s, %s, sizes=[1,8,3] : (tensor<6x8x16xf32>,tensor<i32>,tensor<i32>,tensor<i32>)->tensor<1x8x3xf32>
  %v14 = stablehlo.dynamic_update_slice %a, %v13, %s, %s, %s : (tensor<6x8x16xf32>, tensor<1x8x3xf32>,tensor<i32>,tensor<i32>,tensor<i32>)->tensor<6x8x16xf32>
  %v15 = "stablehlo.gather"(%a, %v16) <{dimension_numbers = #stablehlo.gather<offset_dims=[1,2], collapsed_slice_dims=[0], start_index_map=[0,1], index_vector_dim=1>, slice_sizes = array<i64: 1, 1, 16>}> : (tensor<6x8x16xf32>, tensor<5x2xi32>) -> tensor<5x1x16xf32>
  %v17 = "stablehlo.scatter"(%a, %v16, %v15) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims=[1,2], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0,1], index_vector_dim=1>}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     stablehlo.return %y : tensor<f32>}) : (tensor<6x8x16xf32>, tensor<5x2xi32>, tensor<5x1x16xf32>) -> tensor<6x8x16xf32>
  %v21 = stablehlo.reduce_precision %a, format=e5m2 : tensor<6x8x16xf32>
  return
}

func.func @f5(%a: tensor<6x8x16xf32>, %p: tensor<6x8x16xi1>,%i: tensor<5x3x2xi32>, %u: tensor<5x3x8x2xf32>, %z: tensor<f32>, %zz: tensor<i1>, %img: tensor<8x16x16x4xf32>, %k33: tensor<3x3x4x6xf32>,%k22: tensor<2x2x4x6xf32>, %cot: tensor<8x16x16x6xf32>, %cot2: tensor<8x8x8x6xf32>, %k11: tensor<1x1x4x6xf32>, %kd: tensor<3x3x1x4xf32>) {
  %v17 = stablehlo.constant dense<0.0> : tensor<4x4x4x6xf32>
  %v19 = stablehlo.constant dense<0.0> : tensor<16x16x4x6xf32>
  %v1 = stablehlo.reduce(%a init: %z) applies stablehlo.multiply across dimensions = [1] : (tensor<6x8x16xf32>, tensor<f32>) -> tensor<6x16xf32>
  %v2 = stablehlo.reduce(%p init: %zz) applies stablehlo.and across dimensions = [1] : (tensor<6x8x16xi1>, tensor<i1>) -> tensor<6x16xi1>
  %v3:2 = stablehlo.reduce(%a init: %z), (%a init: %z) across dimensions = [1] : (tensor<6x8x16xf32>, tensor<6x8x16xf32>, tensor<f32>, tensor<f32>) -> (tensor<6x16xf32>, tensor<6x16xf32>)
   reducer(%x: tensor<f32>, %x1: tensor<f32>) (%y: tensor<f32>, %y1: tensor<f32>) {
     stablehlo.return %x, %y : tensor<f32>, tensor<f32> }
  %v4 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims=[2,3], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0,2], index_vector_dim=2>}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     %k = stablehlo.multiply %x, %y : tensor<f32>
     stablehlo.return %k : tensor<f32>}) : (tensor<6x8x16xf32>, tensor<5x3x2xi32>, tensor<5x3x8x2xf32>) -> tensor<6x8x16xf32>
  %v5 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims=[2,3], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0,2], index_vector_dim=2>}> ({^bb0(%x:tensor<f32>,%y:tensor<f32>):
     %k = stablehlo.subtract %x, %y : tensor<f32>
     stablehlo.return %k : tensor<f32>}) : (tensor<6x8x16xf32>, tensor<5x3x2xi32>, tensor<5x3x8x2xf32>) -> tensor<6x8x16xf32>
  %v6 = stablehlo.convolution(%img, %k33) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<3x3x4x6xf32>)->tensor<8x16x16x6xf32>
  %v7 = stablehlo.convolution(%img, %k33) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[0, 0], [0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<3x3x4x6xf32>)->tensor<8x14x14x6xf32>
  %v8 = stablehlo.convolution(%img, %k22) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride=[2,2], pad = [[0, 0], [0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<2x2x4x6xf32>)->tensor<8x8x8x6xf32>
  %v9 = stablehlo.convolution(%img, %k33) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride=[2,2], pad = [[0, 1], [0, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<3x3x4x6xf32>)->tensor<8x8x8x6xf32>
  %v10 = stablehlo.convolution(%img, %cot2) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad = [[0, 1], [0, 1]], rhs_dilate=[2,2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<8x8x8x6xf32>)->tensor<3x3x4x6xf32>
  %v11 = stablehlo.convolution(%cot2, %k33) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {pad = [[2, 1], [2, 1]], lhs_dilate=[2,2], reverse=[true,true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x8x8x6xf32>, tensor<3x3x4x6xf32>)->tensor<8x16x16x4xf32>
  %v12 = stablehlo.convolution(%img, %k11) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<1x1x4x6xf32>)->tensor<8x16x16x6xf32>
  %v13 = stablehlo.convolution(%img, %kd) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad=[[1,1],[1,1]]} {batch_group_count = 1 : i64, feature_group_count = 4 : i64} : (tensor<8x16x16x4xf32>, tensor<3x3x1x4xf32>)->tensor<8x16x16x4xf32>
  %v14 = stablehlo.convolution(%img, %img) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {pad=[[1,1],[1,1]]} {batch_group_count = 4 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<8x16x16x4xf32>)->tensor<3x3x1x4xf32>
  %v15 = stablehlo.convolution(%img, %k11) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride=[2,2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<1x1x4x6xf32>)->tensor<8x8x8x6xf32>
  %v16 = stablehlo.convolution(%img, %v17) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride=[4,2], pad=[[0,0],[1,1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<4x4x4x6xf32>)->tensor<8x4x8x6xf32>
  %v18 = stablehlo.convolution(%img, %v19) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x16x16x4xf32>, tensor<16x16x4x6xf32>)->tensor<8x1x1x6xf32>
  return
}

